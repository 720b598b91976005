"""The template library `dashboard`: components that take values. Their looks are the templates in
`templates/dashboard/components/`; a component without logic is an `include` of its template."""

import json
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django import template
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString
from ua_parser import parse_os, parse_user_agent

from control_plane.curl import first_request
from control_plane.dashboard.charts.chart import exact_dollars
from control_plane.dashboard.navigation import AccountLink, account_navigation
from control_plane.web import figures
from control_plane.web.impersonation import impersonation_on
from gpu_workers.protocol.policy import LimitName
from tenants.money import dollars

register = template.Library()
_PARTS: Final = "dashboard/components"
_LIMITS: Final[dict[str, str]] = {
    LimitName.TOKENS_PER_DAY: "daily token limit",
    LimitName.TOKENS_PER_MONTH: "monthly token limit",
    LimitName.SPEND_PER_DAY: "daily budget",
    LimitName.SPEND_PER_MONTH: "monthly budget",
}
# Set by theme.js.
THEME_COOKIE: Final = "penstock_theme"
_THEMES: Final = frozenset({"light", "dark"})
# Meaning is never colour alone: each has its icon.
_ICON_OF_KIND: Final = {
    "good": "check",
    "warn": "alert",
    "bad": "cross",
    "info": "info",
    "plain": "",
}


@register.simple_tag
def icon(name: str) -> SafeString:
    """Draw a symbol of `icons.svg`; what it means must stand beside it in words."""
    sprite = static("dashboard/icons.svg")
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>', sprite, name
    )


@register.simple_tag(takes_context=True)
def theme_attribute(context: template.Context) -> str:
    """Return the attribute of <html> for the chosen theme; none follows the system."""
    request = context.get("request")
    theme = "" if request is None else request.COOKIES.get(THEME_COOKIE, "")
    return format_html(' data-theme="{}"', theme) if theme in _THEMES else ""


@register.simple_tag
def badge(kind: str, word: object) -> SafeString:
    """Show a state. `kind` is one of good, warn, bad, info, plain."""
    return _within_text("badge", kind=kind, icon_name=_ICON_OF_KIND[kind], word=word)


@register.simple_tag
def when(moment: datetime) -> SafeString:
    """Show a moment relative to now; the exact one is its title."""
    return _within_text(
        "time",
        moment=moment.isoformat(timespec="seconds"),
        relative=figures.relative(moment),
        exact=figures.exact(moment),
    )


@register.simple_tag
def copy_id(value: object) -> SafeString:
    """Show an id shortened in the middle; a click copies all of it."""
    return _within_text("id", whole=str(value), short=figures.short_id(str(value)))


@register.inclusion_tag(f"{_PARTS}/figure.html")
def figure(
    label: str, *, amount: int, period: str, unit: str = "", before: int | None = None
) -> dict[str, Any]:
    """Show an amount of a period beside that of the period before. In the unit `$` amounts are
    nano-dollars."""
    is_money = unit == "$"
    return {
        "label": label,
        "short": figures.short_dollars(amount) if is_money else figures.short_number(amount),
        "exact": dollars(amount) if is_money else f"{amount:,} {unit}",
        "unit": "" if is_money else unit,
        "period": period,
        "comparison": "" if before is None else figures.comparison(amount, before),
    }


@register.inclusion_tag("dashboard/shell/impersonation.html", takes_context=True)
def impersonation_banner(context: template.Context) -> dict[str, Any]:
    """Say that an operator acts as a member, and let them end it; nothing to anybody else."""
    request = context.get("request")
    return {"acting": None if request is None else impersonation_on(request)}


@register.simple_tag(takes_context=True)
def account_pages(context: template.Context) -> list[AccountLink]:
    """Return the rail's links on a page of one's account."""
    found = context["request"].resolver_match
    return account_navigation(found.url_name or "")


register.simple_tag(first_request)


@register.simple_block_tag
def menu(content: SafeString, *, id: str, label: str) -> SafeString:  # noqa: A002 - HTML's name
    """Show a button that opens the links and buttons inside."""
    context = {"content": content, "id": id, "label": label}
    return render_to_string(f"{_PARTS}/menu.html", context)


@register.filter
def as_json(value: object) -> str:
    """Write a value for a script to read, in an attribute: nothing inline is allowed."""
    return json.dumps(value)


@register.filter
def limit_words(limit: str) -> str:
    """Say which limit it is: tokens_per_month is the monthly token limit."""
    return _LIMITS.get(limit, limit.replace("_", " "))


@register.filter
def browser_word(user_agent: str) -> str:
    """Name browser and system by what a browser sends of itself: Firefox on Linux."""
    browser, system = parse_user_agent(user_agent), parse_os(user_agent)
    if browser is None:
        return "Unknown browser"
    return browser.family if system is None else f"{browser.family} on {system.family}"


@register.filter
def lines(values: Iterable[str]) -> str:
    """Set one below the other."""
    return "\n".join(values)


@register.filter
def number(value: int) -> str:
    """Group the digits of a whole number: 12,000."""
    return f"{value:,}"


@register.filter
def decimal(value: Decimal) -> str:
    """Drop the zeros that a column of the database adds: 99.500 is 99.5."""
    return f"{value.normalize():f}"


@register.filter
def money(nanos: int) -> str:
    return figures.short_dollars(nanos)


@register.filter
def duration(milliseconds: float | None) -> str:
    return figures.short_milliseconds(milliseconds)


@register.filter
def exact(nanos: int) -> str:
    """Show nano-dollars in dollars, to the last digit."""
    return exact_dollars(nanos)


@register.filter
def per_million(pico_dollars: int) -> str:
    """Show a price a token as dollars for a million of them, to the last digit."""
    return exact_dollars(pico_dollars * 1000)


@register.filter
def either(words: list[object]) -> str:
    """Join words as a choice: owner, admin or billing."""
    *most, last = map(str, words)
    return f"{', '.join(most)} or {last}" if most else last


def _within_text(component: str, **context: object) -> SafeString:
    """Render a component without the end of its file's last line: it would be a space before the
    full stop."""
    return SafeString(render_to_string(f"{_PARTS}/{component}.html", context).strip())
