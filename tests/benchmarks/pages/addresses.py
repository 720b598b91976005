"""What `make bench-pages` asks for: each an address with `{tenant}`, and how it is called there."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

_WEEK: Final = 7


def lists() -> Iterator[tuple[str, str]]:
    """Yield each list of a tenant: its name, and its address with `{tenant}`."""
    for pattern, address in _of_a_tenant("/api/v1/tenants/"):
        if getattr(pattern.callback, "actions", {}).get("get") == "list":
            yield f"API {address.removeprefix('/api/v1/tenants/{tenant}/')}", address


def pages() -> Iterator[tuple[str, str]]:
    """Yield each page of a tenant that needs nothing but the tenant, and is no file."""
    for pattern, address in _of_a_tenant("/t/"):
        view: Any = getattr(pattern.callback, "view_class", None)
        is_shown = hasattr(view, "get") and "get" in view.http_method_names
        if is_shown and not address.endswith(".csv"):
            yield f"page {pattern.name}", address


def _of_a_tenant(prefix: str) -> Iterator[tuple[Any, str]]:
    from django.urls import get_resolver

    for pattern, route in _flat(get_resolver().url_patterns, "/"):
        address = route.replace("<uuid:tenant_id>", "{tenant}").removesuffix("$")
        if route.startswith(prefix) and "{tenant}" in address and "<" not in address:
            yield pattern, address


def _flat(patterns: Sequence[Any], prefix: str) -> Iterator[tuple[Any, str]]:
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if hasattr(pattern, "url_patterns"):
            yield from _flat(pattern.url_patterns, route)
        else:
            yield pattern, route


def searches() -> Iterator[tuple[str, str]]:
    """Yield what a tenant looks for in its requests of a week: by page, API and as a file."""
    week = {"since": _days_ago(_WEEK)}
    narrowed: dict[str, dict[str, str]] = {
        "all": {},
        "a model": {"model": "large"},
        "an adapter": {"adapter": "adapter-2"},
        "what failed": {"outcome": "failed"},
        "an error code": {"error_code": "worker_lost"},
        "slow ones": {"ttft_over_ms": "2900"},
        "long ones": {"duration_over_ms": "50000"},
        "dear ones": {"cost_over": "0.004"},
        "nothing": {"model": "none", "outcome": "expired"},
    }
    for what, filters in narrowed.items():
        query = urlencode(week | filters)
        yield f"page requests of a week, {what}", f"/t/{{tenant}}/requests?{query}"
        yield f"API requests of a week, {what}", f"/api/v1/tenants/{{tenant}}/requests?{query}"
    query = urlencode(week | {"error_code": "worker_lost"})
    yield "CSV requests of a week, an error code", f"/t/{{tenant}}/requests/export.csv?{query}"


def reports() -> Iterator[tuple[str, str]]:
    """Yield a tenant's reports of a month and of 90 days, as pages, by the API and as files."""
    month, quarter = {"from": _days_ago(29)}, {"from": _days_ago(89)}
    api = "/api/v1/tenants/{tenant}/"
    for query in ({"by": "model"}, {"by": "project", "then_by": "model", "compared": "on"}):
        since = {"from": _days_ago(89)}
        split = " and ".join(query[name] for name in ("by", "then_by") if name in query)
        yield f"page usage of 90 days by {split}", f"/t/{{tenant}}/usage?{urlencode(since | query)}"
        yield (
            f"CSV usage of 90 days by {split}",
            f"/t/{{tenant}}/usage.csv?{urlencode(since | query)}",
        )
    for path in ("usage", "costs", "refusals", "errors"):
        yield f"API {path} of a month", f"{api}{path}?{urlencode(month)}"
        yield f"CSV {path} of 90 days", f"{api}{path}?{urlencode(quarter | {'format': 'csv'})}"


def of_operators() -> Iterator[tuple[str, str]]:
    """Yield each of the operators' dashboards, its fragment and its files, and a tenant's page."""
    from control_plane.operator_site.dashboards.ranged import RangedDashboard
    from control_plane.operator_site.dashboards.registry import DASHBOARDS
    from django.urls import reverse

    for each in DASHBOARDS:
        yield f"operators {each.name}", each.address
        yield f"operators {each.name}, fragment", each.fragment_address
        for table in each.tables if isinstance(each, RangedDashboard) else ():
            address = reverse(f"admin:dashboard-{each.name}-csv", args=[table])
            yield f"operators {each.name}, {table} as a file", address
    yield "operators a tenant", "/admin/tenants/tenant/{tenant}/change/"


def _days_ago(days: int) -> str:
    return str(datetime.now(UTC).date() - timedelta(days=days))
