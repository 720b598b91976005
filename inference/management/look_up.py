"""Finds what a command's arguments name, or says in one sentence why it cannot."""

from django.core.management.base import CommandError

from inference.models import ServedModel
from tenants.management.look_up import tenant_named
from tenants.models import Tenant


def model_named(name: str) -> ServedModel:
    model = ServedModel.objects.filter(name=name).first()
    if model is None:
        names = ", ".join(ServedModel.objects.values_list("name", flat=True)) or "none"
        raise CommandError(f"No served model named {name!r}; existing models: {names}.")
    return model


def visible_to(names: list[str] | None) -> list[Tenant]:
    """Look up the tenants that are named; none means everybody."""
    return [tenant_named(name) for name in names or []]
