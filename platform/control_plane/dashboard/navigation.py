"""The rail: a tenant's pages, in order. The first four stand in a phone's bottom bar, the rest
behind "More". On the pages of one's account it has those."""

from dataclasses import dataclass
from typing import Final

from django.urls import reverse

from tenants.access.member_access import MemberAccess
from tenants.permissions import Permission

IN_BOTTOM_BAR: Final = 4


@dataclass(frozen=True, kw_only=True)
class Section:
    """A page of the rail. `page` is the name of its address below `dashboard:`."""

    page: str
    word: str
    icon: str
    permission: Permission


@dataclass(frozen=True, kw_only=True)
class Link:
    section: Section
    address: str
    is_current: bool
    # Without it the page says who may see it.
    is_allowed: bool
    is_in_bottom_bar: bool


@dataclass(frozen=True, kw_only=True)
class Tab:
    """One of several pages about the same."""

    address: str
    word: str
    is_current: bool


@dataclass(frozen=True, kw_only=True)
class AccountLink(Tab):
    """A page of one's account in its rail."""

    icon: str


SECTIONS: Final = (
    Section(page="overview", word="Overview", icon="home", permission=Permission.VIEW),
    Section(page="projects", word="Projects", icon="folder", permission=Permission.VIEW),
    Section(page="keys", word="Keys", icon="key", permission=Permission.VIEW),
    Section(page="playground", word="Playground", icon="play", permission=Permission.WRITE_KEYS),
    Section(page="models", word="Models", icon="cube", permission=Permission.VIEW),
    Section(page="usage", word="Usage", icon="chart", permission=Permission.VIEW_USAGE),
    Section(page="adapters", word="Adapters", icon="layers", permission=Permission.VIEW_ADAPTERS),
    Section(page="requests", word="Requests", icon="list", permission=Permission.VIEW_USAGE),
    Section(page="members", word="Members", icon="people", permission=Permission.VIEW_PEOPLE),
    Section(page="limits", word="Limits", icon="gauge", permission=Permission.VIEW),
    Section(page="refusals", word="Refusals", icon="barred", permission=Permission.VIEW_USAGE),
    Section(page="billing", word="Billing", icon="card", permission=Permission.VIEW_BALANCE),
    Section(page="webhooks", word="Webhooks", icon="hook", permission=Permission.VIEW_WEBHOOKS),
    Section(page="audit", word="Audit log", icon="log", permission=Permission.VIEW_AUDIT),
    Section(page="settings", word="Settings", icon="gear", permission=Permission.VIEW),
)

# The name of each page's address, with its word and icon.
_ACCOUNT_PAGES: Final = (
    ("account", "Your account", "person"),
    ("account_email", "Email address", "send"),
    ("account_change_password", "Password", "lock"),
    ("mfa_index", "Two-step sign-in", "key"),
    ("usersessions_list", "Sessions", "screen"),
)


def account_navigation(current: str) -> list[AccountLink]:
    """Return the links of the account's rail; `current` is the name of an account's address."""
    section = "mfa_index" if current.startswith("mfa_") else current
    return [
        AccountLink(address=reverse(page), word=word, icon=icon, is_current=page == section)
        for page, word, icon in _ACCOUNT_PAGES
    ]


def navigation(access: MemberAccess, current: str) -> list[Link]:
    """Return the links of the rail; `current` is the page of the section that one is in."""
    has_room = len(SECTIONS) <= IN_BOTTOM_BAR + 1
    return [
        Link(
            section=section,
            address=reverse(f"dashboard:{section.page}", args=[access.tenant.id]),
            is_current=section.page == current,
            is_allowed=access.may(section.permission),
            is_in_bottom_bar=has_room or place < IN_BOTTOM_BAR,
        )
        for place, section in enumerate(SECTIONS)
    ]
