"""Whom the last invoices of a closed tenant reach."""

from django.db import models
from django.utils import timezone

from tenants.isolation.scoping import ScopedManager
from tenants.models import Tenant


class ClosingAddress(models.Model):
    """An address of somebody who ran a tenant's money when it was closed. It is kept for as long as
    an invoice is to be sent or paid, and deleted then (`last_invoices`)."""

    # The log would keep the address.
    is_audited = False

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    email = models.EmailField()
    # Of the newest invoice that was sent here.
    told_until = models.DateTimeField(null=True)
    tries = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField(default=timezone.now)

    objects = ScopedManager["ClosingAddress"]()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "email"], name="closing_address_once")
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id}"
