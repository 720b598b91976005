import django.db.models.deletion
from django.db import migrations, models

from tenants.migrations._schema import sql_file

# The owner of the tables sees all tenants' rows for as long as that takes, and moves states as nobody
# else may. Nobody else sees the tables meanwhile.
_RENAMED = """
ALTER TABLE inference_adapterversion NO FORCE ROW LEVEL SECURITY, DISABLE TRIGGER keep_version;
ALTER TABLE inference_upload NO FORCE ROW LEVEL SECURITY;
UPDATE inference_adapterversion SET state = 'queued' WHERE state = 'uploading';
UPDATE inference_adapterversion AS version SET upload_id = upload.id FROM inference_upload AS upload
    WHERE version.upload_text <> '' AND upload.id::text = version.upload_text;
SET CONSTRAINTS ALL IMMEDIATE;
ALTER TABLE inference_upload FORCE ROW LEVEL SECURITY;
ALTER TABLE inference_adapterversion FORCE ROW LEVEL SECURITY, ENABLE TRIGGER keep_version;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("inference", "0016_adapter_salt"),
    ]

    operations = [
        migrations.AlterField(
            "adapterversion",
            "state",
            models.CharField(
                max_length=20,
                default="queued",
                editable=False,
                choices=[
                    ("queued", "queued"),
                    ("validating", "validating"),
                    ("ready", "ready"),
                    ("refused", "refused"),
                    ("archived", "archived"),
                    ("deleted", "deleted"),
                ],
            ),
        ),
        migrations.RenameField("adapterversion", "upload", "upload_text"),
        migrations.AddField(
            "adapterversion",
            "upload",
            models.ForeignKey(
                "inference.upload",
                django.db.models.deletion.SET_NULL,
                null=True,
                editable=False,
                related_name="+",
            ),
        ),
        sql_file("inference/models/adapter_versions.sql"),
        migrations.RunSQL(_RENAMED),
        migrations.RemoveField("adapterversion", "upload_text"),
    ]
