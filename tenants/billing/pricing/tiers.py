"""Prices name tiers, so a tier keeps its name and stays until those that name it have ended.
PostgreSQL refuses the rest (`prices.sql`); this says so first, in words."""

from django.core.exceptions import ValidationError

from tenants.billing.models import Price
from tenants.models import Tier


def prices_naming(tier: Tier) -> list[str]:
    """Return the names of the prices that keep the tier, by the name that it has in the table."""
    return [str(price) for price in Price.objects.naming_tier(tier.name)]


def check_rename(tier: Tier, name: str) -> None:
    """Raise `ValidationError` if the name changes and prices refer to the tier."""
    if name != tier.name and (prices := prices_naming(tier)):
        named = ValidationError(
            "Cannot rename %(tier)s: prices refer to it (%(prices)s). End them first.",
            code="in_use",
            params={"tier": tier, "prices": "; ".join(prices)},
        )
        raise ValidationError({"name": named})
