from django.db import migrations, models

from tenants.migrations._schema import sql_file


class Migration(migrations.Migration):
    dependencies = [
        ("inference", "0015_pool_identity"),
    ]

    operations = [
        migrations.AddField(
            model_name="adapterversion",
            name="salt",
            field=models.BinaryField(editable=False, max_length=32, null=True),
        ),
        sql_file("inference/models/adapter_versions.sql"),
    ]
