from django.db import migrations

from tenants.isolation.row_security import (
    BindToTenant,
    BuildTenantWall,
    GiveRolesTheirRights,
    LetWebOnly,
)


class Migration(migrations.Migration):
    dependencies = [("tenants", "0001_initial")]

    operations = [
        GiveRolesTheirRights(),
        BuildTenantWall("Tenant", column="id"),
        BuildTenantWall("Project"),
        BuildTenantWall("Membership", user_column="user_id"),
        BuildTenantWall("ApiKey"),
        BuildTenantWall("Quota"),
        BuildTenantWall("QuotaAlert"),
        BindToTenant("ApiKey", column="project_id", target="tenants_project"),
        BindToTenant("Quota", column="project_id", target="tenants_project"),
        BindToTenant("Quota", column="api_key_id", target="tenants_apikey"),
        LetWebOnly("Tenant", "SELECT", "UPDATE (name)"),
        LetWebOnly("Tier", "SELECT"),
        LetWebOnly("Price", "SELECT"),
        LetWebOnly("QuotaAlert", "SELECT"),
    ]
