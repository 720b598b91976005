"""Caps of a tier: how many projects, keys, members, quotas and webhooks a tenant may have."""

from django.core.validators import MinValueValidator
from django.db import migrations, models

_AT_LEAST_ONE = [MinValueValidator(1)]


class Migration(migrations.Migration):
    dependencies = [("tenants", "0012_chain_checkpoint")]

    operations = [
        migrations.AddField(
            "Tier",
            "max_projects",
            models.PositiveIntegerField(
                default=200, validators=_AT_LEAST_ONE, help_text="The first comes with the tenant."
            ),
        ),
        migrations.AddField(
            "Tier",
            "max_api_keys",
            models.PositiveIntegerField(
                "max API keys",
                default=2000,
                validators=_AT_LEAST_ONE,
                help_text="Those that are not revoked, the playground's too.",
            ),
        ),
        migrations.AddField(
            "Tier",
            "max_members",
            models.PositiveIntegerField(
                default=1000, validators=_AT_LEAST_ONE, help_text="With open invitations."
            ),
        ),
        migrations.AddField(
            "Tier",
            "max_quotas",
            models.PositiveIntegerField(
                default=2000, help_text="Of the tenant, its projects and its keys together."
            ),
        ),
        migrations.AddField(
            "Tier",
            "max_webhooks",
            models.PositiveIntegerField(default=16, help_text="Disabled ones too."),
        ),
    ]
