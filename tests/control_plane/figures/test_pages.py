"""Pages of a tenant say of known usage and refusals what PostgreSQL sums up from the records
themselves."""

from collections import Counter
from datetime import date, timedelta
from fractions import Fraction

import pytest
from control_plane.web.figures import short_dollars, short_milliseconds
from django.test import Client
from django.urls import reverse

from tenants.billing.ledger.credit import grant_promotion
from tenants.isolation.scoping import operator_scope
from tenants.money import dollars
from tests.support.figures.asking import (
    RANGE,
    compared,
    file_rows,
    in_one_hour,
    nanos,
    page_of,
    same_days_before,
    told_of,
)
from tests.support.figures.direct_sums import USES, asked, summed
from tests.support.figures.world import World

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


def test_the_request_log_lists_each_as_it_is_on_record(tenant: Client, world: World) -> None:
    expected = asked(
        "SELECT model, adapter, outcome, prompt_tokens, completion_tokens, ttft_ms, cost_nanos"
        " FROM inference_usagerecord WHERE tenant_id = %s ORDER BY request_id DESC",
        [world.acme.id],
    )
    since = {"since": RANGE["from"]}
    listed = page_of(tenant, f"/t/{world.acme.id}/requests", since).table("Model", "Outcome")
    assert len(listed.rows) > 20
    for row, right in zip(listed.rows, expected, strict=False):
        model, adapter, outcome, prompt, completion, ttft, cost = right
        assert row[0].text == (adapter or model)
        assert row[1].text.startswith(outcome)
        assert [row[place].text for place in (3, 4, 5, 7)] == [
            f"{prompt:,}",
            f"{completion:,}",
            "none" if ttft is None else short_milliseconds(ttft),
            short_dollars(cost),
        ]


def test_the_page_of_refusals_has_the_same(tenant: Client, world: World) -> None:
    expected = told_of(world, "code", "limit", "scope", tenant_id=str(world.acme.id))
    page = page_of(tenant, f"/t/{world.acme.id}/refusals", RANGE)
    assert page.singles["Refused"].title == f"{expected.total():,} requests"
    reasons = page.table("Reason", "Limit")
    assert Counter(int(row[-1].text.replace(",", "")) for row in reasons.rows) == Counter(
        expected.values()
    )
    in_file = file_rows(tenant, reverse("dashboard:refusals-csv", args=[world.acme.id]), RANGE)
    for (code, limit, scope), refusals in expected.items():
        same = [
            row for row in in_file
            if (row["code"], row["limit"], row["scope"]) == (code, limit, scope)
        ]  # fmt: skip
        assert sum(int(row["refusals"]) for row in same) == refusals


def test_refusals_have_their_share_and_stand_beside_the_days_before(
    tenant: Client, world: World
) -> None:
    hour, page = in_one_hour(lambda: page_of(tenant, f"/t/{world.acme.id}/refusals"))
    of_day = told_of(world, "day", "code", "limit", "scope", tenant_id=str(world.acme.id))
    now, before = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for (day, *reason), count in of_day.items():
        age = (hour.date() - date.fromisoformat(day)).days
        if age < 14:
            (now if age < 7 else before)[tuple(reason)] += count
    assert now.total() > 0 and before.total() > 0
    comparison = compared(now.total(), before.total())
    assert page.singles["Refused"].period.text.endswith(f", UTC, {comparison}")
    rows = page.table("Reason", "Limit").rows
    assert Counter((row[2].text, row[3].text) for row in rows) == Counter(
        (whole_percent(count, now.total()), f"{count:,}") for count in now.values()
    )


def whole_percent(part: int, whole: int) -> str:
    """Of a few in very many not 0."""
    percent = Fraction(100 * part, whole)
    return "< 1 %" if percent < 1 else f"{round(percent)} %"


@pytest.mark.parametrize("label", ["user", "metadata.team"])
def test_usage_by_label_has_the_sums_of_what_bears_it(
    tenant: Client, world: World, label: str
) -> None:
    expected = {
        value: [int(each) for each in sums]
        for value, *sums in asked(
            f"{USES} SELECT labels ->> %s, sum(cost_nanos), sum(requests), sum(prompt_tokens),"  # noqa: S608
            " sum(completion_tokens) FROM uses WHERE tenant_id = %s AND labels ? %s GROUP BY 1",
            [label, world.acme.id, label],
        )
    }
    query = {**RANGE, "name": label}
    page = page_of(tenant, f"/t/{world.acme.id}/usage/labels", query)
    spent, requests, *_ = map(sum, zip(*expected.values(), strict=True))
    assert page.singles["Spend"].title == dollars(spent)
    assert page.singles["Requests"].title == f"{requests:,} requests"
    rows = page.table(label, "Spend").rows
    told = {row[0].text: [cell.text for cell in row[1:]] for row in rows}
    assert told == {
        value: [
            short_dollars(cost),
            f"{float(Fraction(100 * cost, spent)):.1f} %",
            *(f"{each:,}" for each in counts),
        ]
        for value, (cost, *counts) in expected.items()
    }
    assert list(told) == sorted(told, key=lambda value: -expected[value][0])
    files = file_rows(tenant, reverse("dashboard:labels-csv", args=[world.acme.id]), query)
    columns = ("requests", "prompt_tokens", "completion_tokens")
    for row in files:
        right = expected[row["value"].removeprefix("'")]
        assert [nanos(row["cost_dollars"]), *(int(row[name]) for name in columns)] == right
    assert len(files) == len(expected) > 1


def test_a_key_has_the_sums_of_its_last_thirty_days(tenant: Client, world: World) -> None:
    for key in world.keys[:3]:
        address = f"/t/{world.acme.id}/keys/{key.id}"
        hour, page = in_one_hour(lambda address=address: page_of(tenant, address))  # type: ignore[misc]
        [right] = summed(hour.date() - 29 * DAY, hour.date(), api_key_id=key.id).values()
        tokens = right["prompt_tokens"] + right["completion_tokens"]
        told = {name: page.singles[name].title.strip() for name in ("Requests", "Tokens", "Spend")}
        assert told == {
            "Requests": f"{right['requests']:,}",
            "Tokens": f"{tokens:,} tokens",
            "Spend": dollars(right["cost_nanos"]),
        }


def test_billing_has_the_month_by_project_and_model(tenant: Client, world: World) -> None:
    hour, page = in_one_hour(lambda: page_of(tenant, f"/t/{world.acme.id}/billing"))
    today = hour.date()
    by_share = summed(today.replace(day=1), today, "project_id", "model", tenant_id=world.acme.id)
    [earlier] = summed(*same_days_before(today), tenant_id=world.acme.id).values()
    spent = sum(row["cost_nanos"] for row in by_share.values())
    month = page.singles["This month"]
    assert month.title == dollars(spent)
    assert month.period.text.endswith(f", {compared(spent, earlier['cost_nanos'])}")
    names = {key.project_id: key.project.name for key in world.keys}
    rows = page.table("Project", "Model").rows
    assert Counter(tuple(cell.text for cell in row) for row in rows) == Counter(
        (names[project], model, f"{row['requests']:,}", short_dollars(row["cost_nanos"]))
        for (project, model), row in by_share.items()
    )


def test_transactions_are_those_of_the_ledger(tenant: Client, world: World) -> None:
    with operator_scope("test"):
        grant_promotion(world.acme.id, 3_000_017, reference="a promotion")
    expected = asked(
        "SELECT kind, sum(nanos) FILTER (WHERE account LIKE %s)::bigint,"
        " sum(nanos) FILTER (WHERE account = 'receivable')::bigint, sum(requests)"
        " FROM billing_ledgertransaction AS transaction"
        " JOIN billing_ledgerentry AS entry ON transaction_id = transaction.id"
        " WHERE transaction.tenant_id = %s GROUP BY sequence, kind ORDER BY sequence DESC",
        ["%_credit", world.acme.id],
    )
    rows = page_of(tenant, f"/t/{world.acme.id}/billing/transactions").table("Kind", "Note").rows
    words = {"usage": "Usage", "promotion": "Promotional credit"}
    assert len(expected) > 1
    for row, (kind, credit, owed, requests) in zip(rows, expected[:25], strict=True):
        assert row[0].text == words[kind]
        assert kind != "usage" or row[1].text.startswith(f"{requests:,} request")
        told = [cell.text for cell in row[2:4]]
        assert told == [moved(-credit if credit else 0), moved(owed or 0)]


def moved(nanos: int) -> str:
    return f"{'+' if nanos > 0 else ''}{short_dollars(nanos)}" if nanos else "–unchanged"


def test_one_request_has_its_tokens_prices_and_cost(tenant: Client, world: World) -> None:
    found = asked(
        "SELECT request_id, prompt_tokens - cached_tokens, cached_tokens, completion_tokens,"
        " price_prompt, price_cached, price_completion, price_permille, cost_nanos"
        " FROM inference_usagerecord WHERE tenant_id = %s AND completion_tokens > 0"
        " ORDER BY request_id LIMIT 3",
        [world.acme.id],
    )
    assert len(found) == 3
    for request_id, *counted, permille, cost in found:
        tokens, picos = counted[:3], counted[3:]
        page = page_of(tenant, f"/t/{world.acme.id}/requests/{request_id}")
        rows = page.table("Tokens", "Count").rows
        assert [row[1].text for row in rows] == [f"{each:,}" for each in tokens]
        # Pico-dollars of a token are micro-dollars of a million.
        assert [nanos(row[2].text) for row in rows] == [each * 1000 for each in picos]
        worth = sum(count * each for count, each in zip(tokens, picos, strict=True))
        assert cost == round(Fraction(worth * permille, 1000 * 1000))
