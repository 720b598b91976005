"""Uploads: files that come in parts, in OpenAI's shape. What a part holds lies sealed in the store
of blobs; a file is its parts, in the order that completing them named."""

import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from gpu_workers.protocol.sealed import sealed_size
from tenants.isolation.scoping import ScopedManager
from tenants.models import Tenant

# How long parts may come, and how long a file then waits to be used.
LIFETIME: Final = timedelta(hours=24)
# What has ended is told about for so long.
REMEMBERED: Final = timedelta(hours=24)
MAX_FILENAME_CHARACTERS: Final = 255
MAX_MIME_TYPE_CHARACTERS: Final = 255
# The first word of the paths of parts in the store of blobs.
BLOBS: Final = "uploads"


class UploadStatus(models.TextChoices):
    """OpenAI's. `completed` is a file; the others take no parts and have none."""

    PENDING = "pending"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class UploadPurpose(models.TextChoices):
    """What a file is for."""

    ADAPTER = "adapter"


class Upload(models.Model):
    """A file of `size_bytes` that comes in parts. `part_ids` are those of a completed one, in the
    file's order; `taken_at` is since when somebody uses it, and will discard it."""

    is_audited = False

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    filename = models.CharField(max_length=MAX_FILENAME_CHARACTERS)
    mime_type = models.CharField(max_length=MAX_MIME_TYPE_CHARACTERS)
    purpose = models.CharField(max_length=20, choices=UploadPurpose)
    size_bytes = models.PositiveBigIntegerField()
    status = models.CharField(
        max_length=20, choices=UploadStatus, default=UploadStatus.PENDING, editable=False
    )
    part_ids = ArrayField(models.UUIDField(), default=list, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(editable=False)
    taken_at = models.DateTimeField(null=True, editable=False)

    objects = ScopedManager["Upload"]()

    class Meta:
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["expires_at"], name="upload_first_to_expire")]
        constraints = [
            # What a part's reference to upload and tenant points to.
            models.UniqueConstraint(fields=["id", "tenant"], name="upload_of_tenant"),
            models.CheckConstraint(
                condition=models.Q(status="completed") | models.Q(part_ids=[], taken_at=None),
                name="upload_is_a_file_once_completed",
            ),
        ]

    def __str__(self) -> str:
        return f"upload_{self.id.hex}"

    def has_ended(self, now: datetime | None = None) -> bool:
        """Return whether it takes no more parts."""
        is_over = self.expires_at <= (now or timezone.now())
        return is_over or self.status != UploadStatus.PENDING

    @property
    def file_id(self) -> str:
        return f"file-{self.id.hex}"


class UploadPartManager(ScopedManager["UploadPart"]):
    def blobs(self) -> Iterator[tuple[str, int]]:
        """Yield where all parts lie in the store of blobs, and with how many bytes."""
        rows = self.values_list("tenant_id", "upload_id", "id", "size_bytes")
        for tenant_id, upload_id, part_id, size_bytes in rows.iterator(chunk_size=2000):
            yield part_path(tenant_id, upload_id, part_id), sealed_size(size_bytes)


class UploadPart(models.Model):
    """A piece of an upload; which, is said when that is completed."""

    is_audited = False

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", db_index=False)
    upload = models.ForeignKey(Upload, on_delete=models.CASCADE, related_name="parts")
    size_bytes = models.PositiveBigIntegerField()
    md5 = models.CharField(max_length=32)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = UploadPartManager()

    class Meta:
        ordering = ["created_at", "id"]

    def __str__(self) -> str:
        return f"part_{self.id.hex}"

    @property
    def path(self) -> str:
        """Return where its bytes lie in the store of blobs."""
        return part_path(self.tenant_id, self.upload_id, self.id)


def part_path(tenant_id: uuid.UUID, upload_id: uuid.UUID, part_id: uuid.UUID) -> str:
    return f"{BLOBS}/{tenant_id.hex}/{upload_id.hex}/{part_id.hex}"
