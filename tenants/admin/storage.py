"""What a tenant keeps in the store of blobs, on its page: said by the floor above, which knows."""

from collections.abc import Callable

from tenants.models import Tenant

StorageText = Callable[[Tenant], str]

_texts: list[StorageText] = []


def register_storage_text(text_of: StorageText) -> None:
    """Say who tells it, in a line."""
    _texts[:] = [text_of]


def storage_text(tenant: Tenant) -> str:
    return " ".join(text_of(tenant) for text_of in _texts)
