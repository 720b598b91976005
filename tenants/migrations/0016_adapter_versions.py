"""How many versions of adapters requests may name, by tier."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0015_own_budgets")]

    operations = [
        migrations.AddField(
            "tier",
            "max_adapter_versions",
            models.PositiveIntegerField(
                default=200,
                help_text="Of all adapters together; those that are archived or deleted answer "
                "nobody.",
            ),
        ),
    ]
