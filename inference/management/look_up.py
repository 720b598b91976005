"""Finds what a command's arguments name, or says in one sentence why it cannot."""

from django.core.management.base import CommandError

from inference.models import Adapter, AdapterVersion, ServedModel
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


def adapter_named(text: str) -> Adapter:
    """Return the adapter of this public name, `acme/support`. Raises `CommandError`."""
    owner, _, slug = text.partition("/")
    rows = Adapter.objects.select_related("tenant__tier", "model")
    adapter = rows.filter(tenant__slug=owner, slug=slug).first()
    if adapter is None:
        raise CommandError(f"No adapter named {text!r}; `adapters list` shows them.")
    return adapter


def version_named(text: str) -> AdapterVersion:
    """Return the version of this public name, `acme/support@2`. Raises `CommandError`."""
    name, _, number = text.partition("@")
    adapter = adapter_named(name)
    versions = adapter.versions.select_related("adapter__tenant__tier", "adapter__model")
    version = versions.filter(number=number).first() if _is_number(number) else None
    if version is None:
        raise CommandError(f"No version {text!r}; `adapters show {name}` shows those that exist.")
    return version


def _is_number(text: str) -> bool:
    """Return whether a version may have this number: digits that a column holds."""
    return text.isascii() and text.isdecimal() and len(text) < 10
