"""How far fsck has come with checks that it makes slice by slice."""

from django.db import migrations, models

from tenants.isolation.row_security import LetWebOnly
from tenants.migrations._schema import columns


class Migration(migrations.Migration):
    dependencies = [("tenants", "0013_tier_caps")]

    operations = [
        migrations.CreateModel(
            "CheckProgress",
            columns(
                check_name=models.CharField(max_length=60, primary_key=True, serialize=False),
                slice=models.CharField(max_length=100),
                checked_at=models.DateTimeField(auto_now=True),
            ),
        ),
        LetWebOnly("CheckProgress"),
    ]
