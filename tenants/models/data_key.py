"""Data keys: what the blobs of a tenant are sealed under. Once its key is gone they are noise."""

import os
from collections.abc import Iterator
from typing import Final

from django.db import models
from django.utils import timezone

from tenants import encryption
from tenants.isolation.scoping import ScopedManager
from tenants.models.tenant import Tenant

KEY_BYTES: Final = 32


class DataKeyManager(ScopedManager["DataKey"]):
    def key_of(self, tenant: Tenant) -> bytes:
        """Return the tenant's key of 32 bytes, made at its first use; within its scope or an
        operator's. Raises `Tenant.DoesNotExist` for one that is closed, and
        `encryption.SecretLost`."""
        kept = self.filter(tenant=tenant).first() or self._make(tenant)
        return kept.key

    def destroy(self, tenant: Tenant) -> None:
        """Make all that is sealed under a tenant's key unreadable, for good."""
        self.filter(tenant=tenant).delete()

    def problems(self) -> Iterator[str]:
        """Find, for fsck, keys that are lost, and those of tenants that are closed."""
        for kept in self.select_related("tenant"):
            if kept.tenant.is_closed:
                yield f"Tenant {kept.tenant_id} is closed, and its data key was not destroyed."
            try:
                _ = kept.key
            except encryption.SecretLost as problem:
                yield f"The data key of tenant {kept.tenant_id}: {problem}"

    def _make(self, tenant: Tenant) -> "DataKey":
        # A closing locks the tenant, too: of the two whoever comes second sees what the first did.
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk, closed_at=None)
        wrapped = encryption.encrypt(os.urandom(KEY_BYTES).hex(), encryption.DATA_KEY)
        made, _ = self.get_or_create(tenant=tenant, defaults={"wrapped_key": wrapped})
        return made


class DataKey(models.Model):
    """The key that a tenant's blobs are sealed under, itself encrypted under
    PENSTOCK_SECRET_KEY."""

    tenant = models.OneToOneField(
        Tenant, on_delete=models.CASCADE, primary_key=True, related_name="+"
    )
    wrapped_key = models.BinaryField()
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = DataKeyManager()

    def __str__(self) -> str:
        return f"of {self.tenant_id}"

    @property
    def key(self) -> bytes:
        """Raises `encryption.SecretLost`."""
        return bytes.fromhex(encryption.decrypt(bytes(self.wrapped_key), encryption.DATA_KEY))
