"""How many websockets a tenant may have open, by tier."""

from django.core.validators import MinValueValidator
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0017_adapter_loads")]

    operations = [
        migrations.AddField(
            "tier",
            "max_websockets",
            models.PositiveIntegerField(
                default=1000,
                validators=[MinValueValidator(1)],
                help_text="Open ones, at each gateway process.",
            ),
        ),
    ]
