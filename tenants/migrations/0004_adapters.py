"""Slugs of tenants, and what a tier promises of adapters."""

from django.db import migrations, models

from tenants.migrations._schema import sql_file, titled


class Migration(migrations.Migration):
    dependencies = [("tenants", "0003_sign_on")]

    operations = [
        migrations.AddField(
            "Tenant",
            "slug",
            models.CharField(max_length=63, editable=False, db_default=""),
        ),
        sql_file("tenants/models/slugs.sql"),
        migrations.AddConstraint(
            "Tenant",
            models.UniqueConstraint(fields=["slug"], name="tenant_slug_once"),
        ),
        migrations.AddField(
            "Tier",
            "max_adapters",
            models.PositiveIntegerField(
                default=10, help_text="LoRA adapters, whatever their versions; 0 for none."
            ),
        ),
        migrations.AddField(
            "Tier",
            "max_adapter_bytes",
            models.PositiveBigIntegerField(
                "max adapter storage (bytes)",
                default=1 << 30,
                help_text="All stored versions together.",
            ),
        ),
        migrations.AddField(
            "Tier",
            "max_adapter_rank",
            models.PositiveIntegerField("largest rank of an adapter", default=64),
        ),
        migrations.AlterField(
            "PolicyChange",
            "part",
            models.CharField(
                max_length=20,
                choices=titled(
                    "api_keys", "projects", "tenants", "tiers", "models", "adapters", "everything"
                ),
            ),
        ),
    ]
