"""What nobody finishes or uses goes by itself, and a closed tenant's at once."""

from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

from inference.models import Upload, UploadPart
from inference.models.upload import BLOBS, REMEMBERED, UploadStatus
from inference.room import Room
from inference.uploads.uploading import end_upload
from tenants.models import Tenant
from tenants.offboarding.export import rows_of
from tenants.permissions import Permission

_KEPT: Final = (UploadStatus.PENDING, UploadStatus.COMPLETED)
# Whoever takes a file discards it; this is for one that did not come to that.
_LONGEST_USE: Final = timedelta(days=7)
_MOST_AT_ONCE: Final = 500


def expire_uploads(now: datetime | None = None) -> int:
    """End uploads that were not completed in time, and files that nobody took; forget what ended a
    day ago. Return how many ended. Within an operator's scope."""
    now = now or timezone.now()
    late = Upload.objects.filter(status__in=_KEPT, taken_at=None, expires_at__lte=now)
    forgotten = Upload.objects.filter(taken_at__lte=now - _LONGEST_USE)
    ended = 0
    for rows in (late, forgotten):
        for upload in rows.select_for_update(no_key=True, skip_locked=True)[:_MOST_AT_ONCE]:
            end_upload(upload, UploadStatus.EXPIRED, now)
            ended += 1
    Upload.objects.exclude(status__in=_KEPT).filter(expires_at__lte=now - REMEMBERED).delete()
    return ended


def erase_uploads(tenant: Tenant) -> None:
    """Delete all uploads of a tenant that is closed. Their blobs cannot be read any more, as its
    data key is gone, and are deleted once that is committed."""
    for upload in Upload.objects.filter(tenant=tenant).select_for_update(no_key=True):
        end_upload(upload, UploadStatus.EXPIRED)
        upload.delete()


ROOM: Final = Room(
    exports={"upload": (rows_of(Upload), Permission.VIEW_ADAPTERS)},
    erasers=(erase_uploads,),
    blobs={BLOBS: UploadPart.objects.blobs},
)
