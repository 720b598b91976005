from django.db import migrations

from tenants.audit.triggers import Audit


class Migration(migrations.Migration):
    dependencies = [("inference", "0003_row_security"), ("tenants", "0004_audit")]

    operations = [
        Audit("Pool", label=["name"]),
        Audit("PoolTenant", label=["pool"]),
        Audit("ServedModel", label=["name"]),
        Audit("ServedModelTenant"),
    ]
