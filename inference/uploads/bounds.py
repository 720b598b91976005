"""What one tenant may upload."""

from typing import Final

from tenants.models import Tenant

# As OpenAI's: the official client sends parts of this size.
MAX_PART_BYTES: Final = 64 * 1024 * 1024
MAX_PARTS: Final = 1000
# So many that take parts at a time, and that are remembered in all.
MAX_PENDING: Final = 16
MAX_REMEMBERED: Final = 1000
# A part that was sent twice is stored twice until the upload has ended.
STORED_FOR_EACH_BYTE: Final = 2
_DEFAULT_BYTES: Final = 1024 * 1024 * 1024


def upload_bytes_allowed(tenant: Tenant) -> int:
    """Return how many bytes all uploads of a tenant may have together, by its tier."""
    allowed: int | None = getattr(tenant.tier, "max_adapter_bytes", None)
    return _DEFAULT_BYTES if allowed is None else allowed
