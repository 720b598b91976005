from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0007_alerts"),
        ("billing", "0002_prices"),  # it has taken the prices over
    ]

    operations = [
        migrations.DeleteModel(
            name="Price",
        ),
    ]
