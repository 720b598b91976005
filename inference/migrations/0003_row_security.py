from django.db import migrations

from tenants.isolation.row_security import BuildTenantWall, LetWebOnly


class Migration(migrations.Migration):
    dependencies = [("inference", "0002_initial"), ("tenants", "0002_row_security")]

    operations = [
        BuildTenantWall("UsageRecord"),
        BuildTenantWall("ServedModelTenant"),
        BuildTenantWall("PoolTenant"),
        LetWebOnly("UsageRecord", "SELECT"),
        LetWebOnly("ServedModelTenant", "SELECT"),
        LetWebOnly("PoolTenant", "SELECT"),
        LetWebOnly("ServedModel", "SELECT"),
        LetWebOnly("Pool", "SELECT"),
        LetWebOnly("UsageQuarantine"),
        LetWebOnly("Worker"),
    ]
