"""The one table of who may do what, and its page in the docs.

python -m tests.tenants.test_permissions    writes the page again
"""

from collections.abc import Iterable

import pytest

from gpu_workers.protocol.policy import Scope
from tenants.permissions import (
    ROLE_PERMISSIONS,
    SCOPE_PERMISSIONS,
    Permission,
    Role,
    may_grant,
    permissions_of,
    roles_with,
    scope_for,
)
from tenants.verbs import VERBS, Verb
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "permissions.md"

WORDS = {
    Permission.VIEW: "see projects, keys (masked), quotas, alerts, the tier and models",
    Permission.VIEW_USAGE: "see what was used",
    Permission.VIEW_INVOICES: "see and download invoices",
    Permission.VIEW_AUDIT: "see the audit log",
    Permission.VIEW_PEOPLE: "see the members",
    Permission.VIEW_BALANCE: "see the balance, and the transactions behind it",
    Permission.VIEW_WEBHOOKS: "see webhook endpoints and the log of their deliveries",
    Permission.VIEW_ADAPTERS: "see LoRA adapters, their versions and their traffic",
    Permission.WRITE_KEYS: "make, change, rotate and revoke API keys, none wider than oneself",
    Permission.WRITE_ADAPTERS: "manage LoRA adapters",
    Permission.WRITE_PROJECTS: "make and change projects, rename the tenant",
    Permission.WRITE_QUOTAS: "set quotas of the organisation, its projects and keys (the "
    "operator's own hold beside them)",
    Permission.WRITE_PEOPLE: "invite and remove members, change roles, none above one's own",
    Permission.WRITE_WEBHOOKS: "make, change, test and remove webhook endpoints, redeliver",
    Permission.WRITE_SIGN_ON: "set up single sign-on and mail domains, say what sessions prove",
    Permission.EXPORT: "export the tenant's data",
    Permission.TRANSFER: "hand ownership to another member",
    Permission.CLOSE: "have the tenant's data deleted",
}


def page() -> str:
    """The table as people read it. No permission is anybody's who is not named."""
    return (
        "# Who may do what\n\n"
        "One table in code (`tenants/permissions.py`), for people by their role in a tenant "
        "and for API keys by scope.\nThis page is made from it: "
        "`python -m tests.tenants.test_permissions`; a test keeps the two equal.\n\n"
        "## People\n\n"
        + _table({role.value: ROLE_PERMISSIONS[role] for role in Role})
        + "\nNobody grants or takes a role that may do more than their own, and a tenant keeps an "
        "owner.\n\n## API keys\n\n"
        + _table({f"`{scope.value}`": SCOPE_PERMISSIONS[scope] for scope in Scope})
        + "\nInference itself takes the scope `inference` or `admin`. A key is never wider than "
        "whoever made it.\n\n## Verbs\n\n"
        "All that changes something, by the name that `penstock` has for it. Members do it on "
        "pages and by the API,\nAPI keys by the API, operators with `manage.py` or, where it "
        "says so, in the admin alone.\n\n" + _verbs()
    )


def _verbs() -> str:
    lines = [_line(["", "operators", "members", "API keys", ""]), _line(["---"] * 5)]
    for verb in VERBS:
        if not verb.is_read:
            lines.append(_line([f"`{verb}`", _operators(verb), *_members(verb), verb.told]))
    return "\n".join(lines) + "\n"


def _operators(verb: Verb) -> str:
    if verb.command:
        return f"`{verb.command[0]}`"
    return "" if verb.permission else "the admin"


def _members(verb: Verb) -> tuple[str, str]:
    if verb.permission is None:
        return "", ""
    scope = scope_for(verb.permission) if verb.is_for_keys else None
    return ", ".join(roles_with(verb.permission)), "" if scope is None else f"`{scope}`"


def _table(columns: dict[str, frozenset[Permission]]) -> str:
    lines = [_line(["", *columns]), _line(["---", *[":-:"] * len(columns)])]
    for permission in Permission:
        marks = ["x" if permission in may else "" for may in columns.values()]
        lines.append(_line([WORDS[permission], *marks]))
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def test_the_page_shows_the_table_as_it_is() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.tenants.test_permissions"


def test_every_permission_is_somebodys() -> None:
    assert all(roles_with(permission) for permission in Permission)


@pytest.mark.parametrize(
    ("permission", "scope"),
    [
        (Permission.VIEW, Scope.KEYS_WRITE),
        (Permission.VIEW_USAGE, Scope.USAGE_READ),
        (Permission.WRITE_ADAPTERS, Scope.ADAPTERS_WRITE),
        (Permission.WRITE_PEOPLE, Scope.ADMIN),
        (Permission.CLOSE, None),
    ],
)
def test_the_narrowest_scope_is_named_to_who_lacks_it(
    permission: Permission, scope: Scope | None
) -> None:
    assert scope_for(permission) is scope


def test_a_role_is_granted_by_those_who_may_all_that_it_may() -> None:
    admin = ROLE_PERMISSIONS[Role.ADMIN]
    assert [role for role in Role if may_grant(admin, role)] == [
        Role.ADMIN,
        Role.DEVELOPER,
        Role.BILLING,
        Role.VIEWER,
    ]
    assert all(may_grant(ROLE_PERMISSIONS[Role.OWNER], role) for role in Role)
    assert not any(may_grant(permissions_of([Scope.INFERENCE]), role) for role in Role)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
