"""What people, keys, quotas, projects and tenants become is for verbs to say: no door, and that is
API, pages, admin and commands, writes such a record itself, past the rules that the others keep."""

import ast
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, Final

import pytest

from tenants.models import Project
from tests.support.doors import GUARDED, WrittenByADoor, doors
from tests.support.places import ROOT

MODELS: Final = frozenset(GUARDED.values())
# The other side of their relations.
MANY_OF: Final = {
    "api_keys": "ApiKey",
    "memberships": "Membership",
    "projects": "Project",
    "quotas": "Quota",
}
# What returns one of them.
FINDERS: Final = {"tenant_named": "Tenant", "project_named": "Project", "api_key_named": "ApiKey"}
WRITES: Final = frozenset(
    {
        "save",
        "delete",
        "create",
        "update",
        "get_or_create",
        "update_or_create",
        "bulk_create",
        "bulk_update",
    }
)


def writes(source: str) -> list[str]:
    """Return the lines of a source that write a guarded record, as far as names tell."""
    tree = ast.parse(source)
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        for name, value in _names(node):
            if model := _model_of(value, known):
                known[name] = model
    lines = source.splitlines()
    return [
        lines[node.lineno - 1].strip()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in WRITES
        and _model_of(node.func.value, known)
    ]


def _names(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield a name and what tells of which model it is: its value, or its annotation."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case ast.NamedExpr(target=ast.Name(id=name), value=value):
            yield name, value
        case ast.For(target=ast.Name(id=name), iter=value):
            yield name, value
        case ast.arg(arg=name, annotation=ast.expr() as annotation):
            yield name, annotation


def _model_of(node: ast.expr, known: dict[str, str]) -> str | None:
    """Return the guarded model that an expression is of, or many of."""
    match node:
        case ast.Name(id=name):
            return name if name in MODELS else known.get(name)
        case ast.Constant(value=str(text)):  # an annotation in quotes
            return next((name for name in MODELS if name in text.strip("]").split("[")), None)
        case ast.Call(func=ast.Name(id=name)) if name in FINDERS:
            return FINDERS[name]
        case ast.Call(func=ast.Name(id="list" | "sorted"), args=[first, *_]):
            return _model_of(first, known)
        case ast.Call(func=func):
            return _model_of(func, known)
        case ast.Attribute(attr=name) if name in MANY_OF:
            return MANY_OF[name]
        case ast.Attribute(value=value, attr=name) if name in _OF_THE_SAME:
            return _model_of(value, known)
        case ast.Subscript(value=ast.Name(id="QuerySet" | "list" | "Iterable"), slice=inner):
            return _model_of(inner, known)
        case ast.BoolOp(values=values):
            return next((model for value in values if (model := _model_of(value, known))), None)
    return None


_OF_THE_SAME: Final = frozenset(
    {
        "objects",
        "filter",
        "exclude",
        "order_by",
        "select_for_update",
        "select_related",
        "all",
        "get",
        "first",
        "last",
    }
)


def test_no_door_writes_past_the_verbs() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in doors()
        if (lines := writes(path.read_text(encoding="utf-8")))
    }
    assert len(doors()) > 200
    assert found == {}


@pytest.mark.parametrize(
    "planted",
    [
        "Membership.objects.filter(user=user).delete()",
        "Membership.objects.update_or_create(tenant=tenant, user=user, defaults={})",
        "tenant.memberships.filter(user=user).delete()",
        "Quota(tenant=tenant, limit=limit).save()",
        "quota = Quota.objects.filter(tenant=tenant).first()\nquota.delete()",
        "for key in ApiKey.objects.exclude(revoked_at=None):\n    key.save()",
        "def revoke(selected: QuerySet[ApiKey]) -> None:\n    selected.update(revoked_at=now)",
        'def move(tenants: "QuerySet[Tenant]") -> None:\n    tenants.exclude(tier=t).update(x=t)',
        "project = project_named(tenant, name)\nproject.save(update_fields=['name'])",
        "tenant = tenant_named(options['tenant']) or Tenant(name=name)\ntenant.save()",
        "if (found := tenant.api_keys.first()) is not None:\n    found.delete()",
    ],
)
def test_what_is_planted_is_found(planted: str) -> None:
    assert writes(planted)


def test_what_writes_none_of_them_is_left_alone() -> None:
    assert not writes("form.save()\nuser.save()\nknown.update(names)\nview.delete()")


PLANTED = """
from tenants.models import Project
def write(project):
    project.name = "planted"
    project.save(update_fields=["name"])
"""


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("place", "is_found"),
    [
        ("tenants/admin/planted.py", True),
        ("tenants/management/commands/planted.py", True),
        ("platform/control_plane/dashboard/planted.py", True),
        ("tenants/access/planted.py", False),
    ],
)
@pytest.mark.usefixtures("operators_session")
def test_what_a_door_writes_is_found_while_it_does(
    place: str, is_found: bool, acme: Project
) -> None:
    planted: dict[str, Any] = {}
    exec(compile(PLANTED, str(ROOT / place), "exec"), planted)  # noqa: S102
    with pytest.raises(WrittenByADoor, match=place) if is_found else nullcontext():
        planted["write"](acme)
