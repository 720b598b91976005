import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models
from django.db.models import Q

from tenants.audit.triggers import Audit
from tenants.isolation.row_security import (
    BindToTenant,
    BuildTenantWall,
    GiveRolesTheirRights,
    LetWebOnly,
)
from tenants.migrations._initial import tenancy
from tenants.migrations._schema import UUID_KEY, columns, sql_file, titled

POLICY_VERSION = migrations.CreateModel(
    "PolicyVersion",
    columns(
        id=models.PositiveSmallIntegerField(
            primary_key=True, default=1, editable=False, serialize=False
        ),
        version=models.PositiveBigIntegerField(default=0),
        mark=models.UUIDField(default=uuid.UUID(int=0), editable=False),
    ),
    options={
        "constraints": [models.CheckConstraint(condition=Q(id=1), name="policy_version_is_one_row")]
    },
)

POLICY_CHANGE = migrations.CreateModel(
    "PolicyChange",
    columns(
        id=UUID_KEY,
        part=models.CharField(
            max_length=20,
            choices=titled("api_keys", "projects", "tenants", "tiers", "models", "everything"),
        ),
        row_ids=ArrayField(models.TextField(), default=list),
        version=models.PositiveBigIntegerField(null=True, unique=True, editable=False),
    ),
)

AUDIT_CHAIN = migrations.CreateModel(
    "AuditChain",
    columns(
        chain=models.UUIDField(primary_key=True, serialize=False),
        sequence=models.PositiveBigIntegerField(),
        hash=models.BinaryField(max_length=32),
    ),
)

AUDIT_EVENT = migrations.CreateModel(
    "AuditEvent",
    columns(
        id=UUID_KEY,
        sequence=models.PositiveBigIntegerField(),
        at=models.DateTimeField("time"),
        actor_kind=models.CharField(max_length=20),
        actor_id=models.CharField(blank=True, max_length=200),
        verb=models.CharField(max_length=40),
        record_kind=models.CharField(blank=True, max_length=100),
        record_id=models.CharField(blank=True, max_length=200),
        changes=models.TextField(),
        personal_digest=models.BinaryField(max_length=32),
        previous_hash=models.BinaryField(max_length=32),
        hash=models.BinaryField(max_length=32),
        tenant=models.ForeignKey(
            "tenants.tenant", models.PROTECT, null=True, db_index=False, related_name="audit_events"
        ),
    ),
    options={
        "ordering": ["-at"],
        "indexes": [
            models.Index(fields=["-at", "-sequence"], name="audit_newest"),
            models.Index(fields=["record_id", "-at"], name="audit_of_record"),
            models.Index(fields=["actor_id", "-at"], name="audit_by_actor"),
        ],
        "constraints": [
            models.UniqueConstraint(fields=["tenant", "sequence"], name="audit_sequence_of_tenant"),
            models.UniqueConstraint(
                fields=["sequence"], condition=Q(tenant=None), name="audit_sequence_without_tenant"
            ),
        ],
    },
)

PERSONAL_DETAIL = migrations.CreateModel(
    "PersonalDetail",
    columns(
        event=models.OneToOneField(
            "tenants.auditevent",
            models.PROTECT,
            primary_key=True,
            related_name="personal",
            serialize=False,
        ),
        salt=models.BinaryField(max_length=32),
        actor_name=models.CharField(blank=True, max_length=320),
        address=models.CharField(blank=True, max_length=45),
        record_name=models.CharField(blank=True, max_length=320),
        changes=models.TextField(),
        tenant=models.ForeignKey("tenants.tenant", models.PROTECT, null=True, related_name="+"),
    ),
)


class Migration(migrations.Migration):
    initial = True
    dependencies = [("auth", "0012_alter_user_first_name_max_length")]

    operations = [
        tenancy.TIER,
        tenancy.USER,
        tenancy.TENANT,
        tenancy.PROJECT,
        tenancy.MEMBERSHIP,
        tenancy.API_KEY,
        tenancy.QUOTA,
        tenancy.QUOTA_ALERT,
        POLICY_VERSION,
        POLICY_CHANGE,
        AUDIT_CHAIN,
        AUDIT_EVENT,
        PERSONAL_DETAIL,
        GiveRolesTheirRights(),
        BuildTenantWall("Tenant", column="id"),
        BuildTenantWall("Membership", user_column="user_id"),
        *map(BuildTenantWall, ("Project", "ApiKey", "Quota", "QuotaAlert")),
        *map(BuildTenantWall, ("AuditEvent", "PersonalDetail")),
        BindToTenant("ApiKey", column="project_id", target="tenants_project"),
        BindToTenant("Quota", column="project_id", target="tenants_project"),
        BindToTenant("Quota", column="api_key_id", target="tenants_apikey"),
        LetWebOnly("Tenant", "SELECT", "UPDATE (name)"),
        LetWebOnly("Tier", "SELECT"),
        LetWebOnly("QuotaAlert", "SELECT"),
        LetWebOnly("PolicyChange", "INSERT"),
        LetWebOnly("PolicyVersion", "SELECT"),
        sql_file("tenants/policy/versions.sql"),
        sql_file("tenants/audit/audit.sql"),
        Audit("Tenant", tenant="id", label=["name"], personal=["name"]),
        Audit("Project", label=["name"], personal=["name"]),
        Audit("Membership", label=["user_id"]),
        Audit(
            "ApiKey",
            label=["name", "public_id"],
            noise=["last_used_at"],
            personal=["name", "allowed_networks"],
        ),
        Audit("Quota", label=["limit"]),
        Audit("Tier", label=["name"]),
        Audit(
            "User",
            label=["email"],
            noise=["last_login"],
            secret=["password"],
            personal=["email", "name"],
        ),
        # What an operator who is no superuser may do.
        Audit("User_user_permissions", label=["user_id"]),
        Audit("User_groups", label=["user_id"]),
    ]
