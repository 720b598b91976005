import django.contrib.postgres.fields
from django.db import migrations, models
from django.db.models import Q
from django.utils import timezone

from tenants.isolation.row_security import BindToTenant, BuildTenantWall
from tenants.migrations._schema import UUID_KEY, columns, titled

UPLOAD = migrations.CreateModel(
    "Upload",
    columns(
        id=UUID_KEY,
        filename=models.CharField(max_length=255),
        mime_type=models.CharField(max_length=255),
        purpose=models.CharField(max_length=20, choices=titled("adapter")),
        size_bytes=models.PositiveBigIntegerField(),
        status=models.CharField(
            choices=titled("pending", "completed", "cancelled", "expired"),
            default="pending",
            editable=False,
            max_length=20,
        ),
        part_ids=django.contrib.postgres.fields.ArrayField(
            models.UUIDField(), default=list, editable=False, size=None
        ),
        created_at=models.DateTimeField(default=timezone.now, editable=False),
        expires_at=models.DateTimeField(editable=False),
        taken_at=models.DateTimeField(editable=False, null=True),
        tenant=models.ForeignKey("tenants.tenant", models.CASCADE, related_name="+"),
    ),
    options={
        "ordering": ["-created_at"],
        "indexes": [models.Index(fields=["expires_at"], name="upload_first_to_expire")],
        "constraints": [
            models.UniqueConstraint(fields=["id", "tenant"], name="upload_of_tenant"),
            models.CheckConstraint(
                condition=Q(status="completed") | Q(part_ids=[], taken_at=None),
                name="upload_is_a_file_once_completed",
            ),
        ],
    },
)

UPLOAD_PART = migrations.CreateModel(
    "UploadPart",
    columns(
        id=UUID_KEY,
        size_bytes=models.PositiveBigIntegerField(),
        md5=models.CharField(max_length=32),
        created_at=models.DateTimeField(default=timezone.now, editable=False),
        tenant=models.ForeignKey(
            "tenants.tenant", models.CASCADE, db_index=False, related_name="+"
        ),
        upload=models.ForeignKey("inference.upload", models.CASCADE, related_name="parts"),
    ),
    options={"ordering": ["created_at", "id"]},
)


class Migration(migrations.Migration):
    dependencies = [("tenants", "0005_data_key"), ("inference", "0003_adapter")]

    operations = [
        UPLOAD,
        UPLOAD_PART,
        BuildTenantWall("Upload"),
        BuildTenantWall("UploadPart"),
        BindToTenant("UploadPart", column="upload_id", target="inference_upload"),
    ]
