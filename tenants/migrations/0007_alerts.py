import django.contrib.postgres.fields
import django.core.validators
from django.db import migrations, models

import tenants.models.quota


class Migration(migrations.Migration):
    dependencies = [("tenants", "0006_saturation")]

    operations = [
        migrations.AddField(
            model_name="membership",
            name="gets_alerts",
            field=models.BooleanField(
                default=True,
                help_text="Those that are for this role.",
                verbose_name="gets alerts by e-mail",
            ),
        ),
        migrations.AddField(
            model_name="quota",
            name="alert_percents",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.PositiveSmallIntegerField(
                    validators=[
                        django.core.validators.MinValueValidator(1),
                        django.core.validators.MaxValueValidator(1000),
                    ]
                ),
                blank=True,
                default=tenants.models.quota.default_alert_percents,
                help_text="Shares of a day's or a month's quota at which the tenant is told, in percent.",
                size=10,
            ),
        ),
        migrations.AlterField(
            model_name="quotaalert",
            name="percent",
            field=models.PositiveSmallIntegerField(help_text="Of the quota."),
        ),
    ]
