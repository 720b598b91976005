"""At which balance a prepaid tenant is told that it is low."""

from django.core.validators import MaxValueValidator
from django.db import models

from tenants.isolation.scoping import ScopedManager
from tenants.models import Tenant

DEFAULT_THRESHOLD_NANOS = 5_000_000_000  # five dollars


class BalanceAlert(models.Model):
    """One for each prepaid tenant, made when its balance is first looked at."""

    tenant = models.OneToOneField(
        Tenant, on_delete=models.CASCADE, primary_key=True, related_name="+"
    )
    threshold_nanos = models.PositiveBigIntegerField(
        "threshold (nano-dollars)",
        null=True,
        blank=True,
        default=DEFAULT_THRESHOLD_NANOS,
        validators=[MaxValueValidator(2**62)],
        help_text="Notify at or below this balance. Leave blank for no alert.",
    )
    # Told already; it is told again after the balance was above the threshold.
    is_low = models.BooleanField("low balance notified", default=False)

    objects = ScopedManager["BalanceAlert"]()

    def __str__(self) -> str:
        return str(self.tenant_id)
