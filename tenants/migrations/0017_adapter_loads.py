"""For how long loads of adapters may hold engines up, by tier."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0016_adapter_versions")]

    operations = [
        migrations.AddField(
            "tier",
            "max_adapter_load_seconds",
            models.PositiveIntegerField(
                "max loading of adapters (seconds a minute)",
                default=30,
                help_text="For so long a minute loads of a tenant's adapters may hold engines up; "
                "0 for as long as it takes.",
            ),
        ),
    ]
