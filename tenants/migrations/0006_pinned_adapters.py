from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0005_data_key")]

    operations = [
        migrations.AddField(
            "Tier",
            "max_pinned_adapters",
            models.PositiveIntegerField(
                "max pinned adapters",
                default=0,
                help_text="Adapters that workers keep at hand though nobody asks for them.",
            ),
        ),
    ]
