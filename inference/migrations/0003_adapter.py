from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import migrations, models
from django.db.models import F, Q
from django.utils import timezone

from tenants.audit.triggers import Audit
from tenants.isolation.row_security import BindToTenant, BuildTenantWall, LetWebOnly
from tenants.migrations._schema import UUID_KEY, columns, pairs, sql_file

ADAPTER = migrations.CreateModel(
    "Adapter",
    columns(
        id=UUID_KEY,
        slug=models.CharField(
            "name",
            max_length=100,
            validators=[
                RegexValidator(
                    "\\A[a-z0-9]+(?:[._-][a-z0-9]+)*\\Z",
                    "Use small letters and digits, with single . _ - between them.",
                )
            ],
        ),
        main=models.PositiveIntegerField("version that answers", null=True, blank=True),
        canary=models.PositiveIntegerField("second version", null=True, blank=True),
        canary_permille=models.PositiveSmallIntegerField(
            "its share (‰)",
            null=True,
            blank=True,
            validators=[MinValueValidator(1), MaxValueValidator(999)],
        ),
        created_at=models.DateTimeField(default=timezone.now, editable=False),
        archived_at=models.DateTimeField(null=True, blank=True, editable=False),
        model=models.ForeignKey(
            "inference.servedmodel",
            models.PROTECT,
            to_field="name",
            db_column="model",
            related_name="adapters",
        ),
        tenant=models.ForeignKey("tenants.tenant", models.PROTECT, related_name="adapters"),
    ),
    options={
        "ordering": ["slug"],
        "constraints": [
            models.UniqueConstraint(
                fields=["tenant", "slug"],
                name="adapter_once_in_tenant",
                violation_error_code="unique_together",
                violation_error_message="An adapter with this name already exists.",
            ),
            models.UniqueConstraint(fields=["id", "tenant"], name="adapter_of_tenant"),
            models.CheckConstraint(
                condition=Q(canary=None, canary_permille=None)
                | Q(
                    main__isnull=False,
                    canary__isnull=False,
                    canary_permille__gte=1,
                    canary_permille__lt=1000,
                )
                & ~Q(main=F("canary")),
                name="adapter_traffic_is_whole",
            ),
            models.CheckConstraint(
                condition=Q(archived_at=None) | Q(main=None), name="adapter_archived_is_silent"
            ),
        ],
    },
)

ADAPTER_VERSION = migrations.CreateModel(
    "AdapterVersion",
    columns(
        id=UUID_KEY,
        number=models.PositiveIntegerField(validators=[MinValueValidator(1)]),
        state=models.CharField(
            max_length=20,
            default="uploading",
            editable=False,
            choices=pairs("uploading", "validating", "ready", "refused", "archived", "deleted"),
        ),
        upload=models.CharField(max_length=300, blank=True, default="", editable=False),
        upload_bytes=models.PositiveBigIntegerField(default=0, editable=False),
        opaque_name=models.CharField(max_length=64, blank=True, default="", editable=False),
        digest=models.CharField("SHA-256", max_length=64, blank=True, default="", editable=False),
        path=models.CharField(max_length=300, blank=True, default="", editable=False),
        stored_bytes=models.PositiveBigIntegerField(default=0, editable=False),
        base_digest=models.CharField(max_length=64, blank=True, default="", editable=False),
        rank=models.PositiveIntegerField(null=True, blank=True, editable=False),
        parameters=models.PositiveBigIntegerField(null=True, blank=True, editable=False),
        warnings=models.JSONField(blank=True, default=list, editable=False),
        refusal_code=models.CharField(max_length=80, blank=True, default="", editable=False),
        refusal=models.CharField(max_length=1000, blank=True, default="", editable=False),
        created_at=models.DateTimeField(default=timezone.now, editable=False),
        ready_at=models.DateTimeField(null=True, blank=True, editable=False),
        archived_at=models.DateTimeField(null=True, blank=True, editable=False),
        delete_at=models.DateTimeField(null=True, blank=True, editable=False),
        adapter=models.ForeignKey("inference.adapter", models.CASCADE, related_name="versions"),
        tenant=models.ForeignKey(
            "tenants.tenant", models.PROTECT, db_index=False, related_name="+"
        ),
    ),
    options={
        "ordering": ["adapter", "-number"],
        "indexes": [
            models.Index(fields=["opaque_name"], name="adapter_version_by_name"),
            models.Index(
                fields=["delete_at"],
                condition=Q(delete_at__isnull=False),
                name="adapter_version_to_delete",
            ),
        ],
        "constraints": [
            models.UniqueConstraint(
                fields=["adapter", "number"], name="adapter_version_once_in_adapter"
            ),
            models.CheckConstraint(
                condition=~Q(state="ready")
                | ~Q(opaque_name="") & ~Q(digest="") & ~Q(path="") & Q(rank__isnull=False),
                name="adapter_version_ready_is_stored",
            ),
        ],
    },
)


class Migration(migrations.Migration):
    dependencies = [("tenants", "0004_adapters"), ("inference", "0002_idempotent_call")]

    operations = [
        sql_file("inference/models/served_model_names.sql"),
        ADAPTER,
        ADAPTER_VERSION,
        sql_file("inference/models/adapter_versions.sql"),
        *map(BuildTenantWall, ("Adapter", "AdapterVersion")),
        BindToTenant("AdapterVersion", column="adapter_id", target="inference_adapter"),
        # A number that was used is on record: only closing a tenant takes its adapters away.
        *(
            LetWebOnly(model, "SELECT", "INSERT", "UPDATE")
            for model in ("Adapter", "AdapterVersion")
        ),
        Audit("Adapter", label=["slug"]),
        Audit("AdapterVersion", label=["number"]),
        migrations.AddField(
            "UsageRecord",
            "adapter_version",
            models.PositiveIntegerField(default=0, db_default=0),
        ),
    ]
