from django.db import migrations, models

from tenants.migrations._schema import sql_file


class Migration(migrations.Migration):
    dependencies = [("inference", "0004_upload")]

    operations = [
        migrations.AddField(
            "AdapterVersion",
            "effect",
            models.CharField(
                max_length=10,
                default="unknown",
                editable=False,
                choices=[
                    ("unknown", "unknown"),
                    ("changes", "changes answers"),
                    ("none", "changes nothing"),
                    ("not_finite", "gives no numbers"),
                ],
            ),
        ),
        migrations.AddField(
            "AdapterVersion",
            "live_at",
            models.DateTimeField(null=True, blank=True, editable=False),
        ),
        # What looks at both.
        sql_file("inference/models/adapter_versions.sql"),
    ]
