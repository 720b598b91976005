"""Finds what a command's arguments name, or says in one sentence why it cannot."""

import uuid

from django.core.management.base import CommandError
from django.db.models import Q

from tenants import key_format
from tenants.models import ApiKey, Project, Tenant, Tier, User


def tenant_named(text: str) -> Tenant:
    """Return the tenant with this id or slug, or else this name in any case. Raises
    `CommandError`, also where several have the name."""
    query = Q(id=_uuid(text)) if _uuid(text) else Q(slug=text.strip())
    found = list(Tenant.objects.filter(query)) or list(
        Tenant.objects.filter(name__iexact=text.strip()).order_by("created_at")
    )
    if not found:
        raise CommandError(f"No tenant named {text!r}.")
    if len(found) > 1:
        slugs = ", ".join(tenant.slug for tenant in found)
        raise CommandError(f"{len(found)} tenants are named {text!r}; say which by slug: {slugs}.")
    return found[0]


def project_named(tenant: Tenant, name: str | None) -> Project:
    """Return the tenant's project of that name; without a name its only one. Raises
    `CommandError`."""
    projects = list(tenant.projects.all())
    if name is None and len(projects) == 1:
        return projects[0]
    names = ", ".join(sorted(repr(project.name) for project in projects)) or "none"
    if name is None:
        raise CommandError(f"Choose a project with --project; {tenant.name} has {names}.")
    for project in projects:
        if project.name == name:
            return project
    raise CommandError(f"{tenant.name} has no project {name!r}; it has {names}.")


def tier_named(name: str) -> Tier:
    tier = Tier.objects.filter(name=name).first()
    if tier is None:
        names = ", ".join(Tier.objects.values_list("name", flat=True)) or "none"
        raise CommandError(f"No tier named {name!r}; existing tiers: {names}.")
    return tier


def api_key_named(text: str) -> ApiKey:
    """Return the key with this id or public id; a whole key is taken too, as somebody finds it in a
    leak. Raises `CommandError`."""
    public_id = text.removeprefix(f"{key_format.PREFIX}-").split("-")[0]
    query = Q(id=_uuid(text)) if _uuid(text) else Q(public_id=public_id)
    key = ApiKey.objects.filter(query).first()
    if key is None:
        raise CommandError("No API key has this id or public id.")
    return key


def user_named(email: str) -> User:
    user = User.objects.filter(email=email.strip().lower()).first()
    if user is None:
        raise CommandError(f"No user {email!r}.")
    return user


def place_named(
    tenant: Tenant, project: str | None, api_key: str | None
) -> dict[str, Project | ApiKey | None]:
    """Return where a quota of the tenant counts: at a project, a key, or the whole of it. Raises
    `CommandError`."""
    key = None if api_key is None else api_key_named(api_key)
    if key is not None and key.tenant_id != tenant.id:
        raise CommandError(f"{tenant.name} has no API key with this id.")
    return {
        "project": None if project is None else project_named(tenant, project),
        "api_key": key,
    }


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
