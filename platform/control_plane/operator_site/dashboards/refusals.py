"""Refusals over all tenants: by reason, model and tenant."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from django import forms

from control_plane.live.panels import Panel
from control_plane.operator_site.dashboards.ranged import (
    RangedDashboard,
    Selection,
    Table,
    ranged_panel,
)
from control_plane.operator_site.dashboards.tenant_names import tenant_names
from gpu_workers.protocol.refusals import UNKNOWN_MODEL
from inference.refusals.reports import Dimension, RefusalQuery, refusals_by, total
from tenants.isolation.scoping import operator_scope

MOST_ROWS: Final = 50
_GROUPS: Final[Mapping[str, tuple[Dimension, ...]]] = {
    "code": (Dimension.CODE, Dimension.LIMIT, Dimension.SCOPE),
    "model": (Dimension.MODEL,),
    "tenant": (Dimension.TENANT,),
}


@dataclass(frozen=True, kw_only=True)
class RefusalRow:
    """How often; `percent` of all, at least 1, is the length of its bar."""

    name: str
    detail: str
    refusals: str
    share: str
    percent: int


@dataclass(frozen=True, kw_only=True)
class RefusalTable:
    """Those with most refusals; `left_out` counts the refusals of those that are not shown."""

    by: str
    refusals: str
    rows: tuple[RefusalRow, ...]
    left_out: str


def refusal_table(by: str, selection: Selection) -> RefusalTable:
    """Return the table that the page shows."""
    with operator_scope("dashboard refusals"):
        found = _found(selection, by, most=MOST_ROWS)
        of_all = total(RefusalQuery(**_asked(selection)))
        names = _names(found)
    shown = sum(row["refusals"] for row in found)
    return RefusalTable(
        by=by,
        refusals=f"{of_all:,}",
        rows=tuple(_row(row, of_all, names) for row in found),
        left_out=f"{of_all - shown:,}" if of_all > shown else "",
    )


def refusal_file(by: str, selection: Selection) -> Table:
    """Return all rows."""
    found = _found(selection, by)
    names = _names(found)
    columns = [dimension.column for dimension in _GROUPS[by]]
    named = ["tenant"] if by == "tenant" else []
    return [
        [*columns, *named, "refusals"],
        *(
            [
                *(row[column] for column in columns),
                *(names.get(str(row["tenant_id"]), "") for _ in named),
                row["refusals"],
            ]
            for row in found
        ),
    ]


def _found(selection: Selection, by: str, most: int | None = None) -> list[dict[str, Any]]:
    return refusals_by(*_GROUPS[by], most=most, **_asked(selection))


def _asked(selection: Selection) -> dict[str, Any]:
    return {"first": selection.first, "last": selection.last, **selection.filters}


def _names(rows: list[dict[str, Any]]) -> dict[str, str]:
    return tenant_names(str(row["tenant_id"]) for row in rows if "tenant_id" in row)


def _row(row: Mapping[str, Any], of_all: int, names: Mapping[str, str]) -> RefusalRow:
    detail = ", ".join(filter(None, (row.get("limit"), row.get("scope"))))
    if "tenant_id" in row:
        name = names.get(str(row["tenant_id"]), str(row["tenant_id"]))
    elif "code" in row:
        name = row["code"]
    else:
        name = {"": "(not read)", UNKNOWN_MODEL: "(unknown)"}.get(row["model"], row["model"])
    percent = row["refusals"] * 100 / of_all
    return RefusalRow(
        name=name,
        detail=detail,
        refusals=f"{row['refusals']:,}",
        share="< 1 %" if percent < 1 else f"{percent:.0f} %",
        percent=max(1, round(percent)),
    )


def _filters() -> Mapping[str, forms.Field]:
    return {
        "code": forms.CharField(label="Code", max_length=80, required=False),
        "model": forms.CharField(label="Model", max_length=200, required=False),
        "tenant_id": forms.UUIDField(label="Tenant id", required=False),
    }


def _panels(selection: Selection) -> tuple[Panel, ...]:
    titles = {"code": "By code, limit and scope", "model": "By model", "tenant": "By tenant"}
    return tuple(
        ranged_panel(
            selection,
            name=f"refusals-{by}",
            title=title,
            template="admin/dashboards/refusals.html",
            read=partial(refusal_table, by),
        )
        for by, title in titles.items()
    )


REFUSALS: Final = RangedDashboard(
    name="refusals",
    title="Refusals",
    icon="block",
    permission="inference.view_usagerecord",
    build=_panels,
    filters=_filters,
    tables={by: partial(refusal_file, by) for by in _GROUPS},
    legend=(
        "Requests that gateways refused before they ran, by what their callers were told. Requests "
        "that ran and that every worker died with are dead letters. Read anew once a minute."
    ),
)
