from django.db import migrations, models
from django.utils import timezone

from tenants.audit.triggers import Audit
from tenants.isolation.row_security import BuildTenantWall, LetWebOnly
from tenants.migrations._schema import columns


class Migration(migrations.Migration):
    dependencies = [("tenants", "0004_adapters")]

    operations = [
        migrations.CreateModel(
            "DataKey",
            columns(
                tenant=models.OneToOneField(
                    "tenants.tenant",
                    models.CASCADE,
                    primary_key=True,
                    related_name="+",
                    serialize=False,
                ),
                wrapped_key=models.BinaryField(),
                created_at=models.DateTimeField(default=timezone.now, editable=False),
            ),
        ),
        BuildTenantWall("DataKey"),
        # Who has lost a key, or has another in its place, has lost what is sealed under it.
        LetWebOnly("DataKey", "SELECT", "INSERT"),
        Audit("DataKey"),
    ]
