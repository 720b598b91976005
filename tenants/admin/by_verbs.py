"""What forms of the admin have understood, done by the verbs that every door calls."""

from collections.abc import Collection
from typing import Any

from django.db.models import Model

from tenants.access import people
from tenants.access.projects import add_project, change_project, delete_project
from tenants.access.quotas import delete_quota, save_quota
from tenants.models import Membership, Project, Quota, Tenant
from tenants.permissions import Role


def save(record: Model, changed: Collection[str]) -> None:
    """Store a record as its form has filled it: a new one, or these fields of one."""
    match record:
        case Tenant():
            if "name" in changed:
                record.rename(record.name)
            if "tier" in changed:
                record.move_to(record.tier)
        case Project():
            _save_project(record, changed)
        case Quota():
            save_quota(record)
        case Membership():
            _save_member(record)
        case _:
            raise TypeError(f"No verb of the admin stores a {type(record).__name__}.")


def delete(record: Model) -> None:
    """Delete a record that a form deletes."""
    match record:
        case Project():
            delete_project(record)
        case Quota():
            delete_quota(record)
        case Membership():
            people.remove(record, by=people.OPERATOR)
        case _:
            raise TypeError(f"No verb of the admin deletes a {type(record).__name__}.")


def save_formset(formset: Any) -> None:
    """Store what the rows of a page say."""
    formset.save(commit=False)
    for record, changed in formset.changed_objects:
        save(record, changed)
    for record in formset.new_objects:
        save(record, ())
    for record in formset.deleted_objects:
        delete(record)


def _save_project(project: Project, changed: Collection[str]) -> None:
    if not project._state.adding:
        change_project(project, **{name: getattr(project, name) for name in changed})
        return
    fields = ("name", "on_saturation", "smaller_model")
    asked = {name: getattr(project, name) for name in fields}
    _became(project, add_project(project.tenant, **asked))


def _save_member(membership: Membership) -> None:
    gets_alerts = membership.gets_alerts
    saved, _is_new = people.set_member(
        membership.tenant, membership.user, Role(membership.role), by=people.OPERATOR
    )
    if saved.gets_alerts != gets_alerts:
        people.set_alerts(saved, gets_alerts, by=people.OPERATOR)
    _became(membership, saved)


def _became(record: Model, stored: Model) -> None:
    """Have the form's record be what the verb has stored."""
    record.pk, record._state.adding = stored.pk, False
