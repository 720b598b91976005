"""Keys that count into the quotas of the key that made them."""

from django.db import migrations, models

from tenants.isolation.row_security import BindToTenant


class Migration(migrations.Migration):
    dependencies = [("tenants", "0009_saved_views")]

    operations = [
        migrations.AddField(
            "ApiKey",
            "budget_key",
            models.ForeignKey(
                "tenants.apikey",
                models.RESTRICT,
                editable=False,
                null=True,
                related_name="family",
                verbose_name="counts into",
            ),
        ),
        BindToTenant("ApiKey", column="budget_key_id", target="tenants_apikey"),
    ]
