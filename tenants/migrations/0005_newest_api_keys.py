from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0004_audit"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="apikey",
            index=models.Index(fields=["-created_at", "-id"], name="api_key_newest"),
        ),
        migrations.AddIndex(
            model_name="apikey",
            index=models.Index(
                fields=["tenant", "-created_at", "-id"], name="api_key_newest_of_tenant"
            ),
        ),
    ]
