from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0006_pinned_adapters")]

    operations = [
        migrations.AddField(
            "Project",
            "usage_labels",
            ArrayField(
                models.CharField(max_length=73),
                default=list,
                blank=True,
                size=4,
                help_text="Whom requests are for: 'user' and up to three of 'metadata.<key>' of "
                "requests, by which usage is recorded.",
            ),
        ),
    ]
