"""Reports of the API and their files say of known usage, waste, retries and refusals what
PostgreSQL sums up from the records themselves: money to the nano-dollar, percentiles within the
error of a histogram."""

from collections import Counter
from uuid import uuid4

import pytest
from django.core.cache import cache
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from inference.operations.label_checks import label_problems
from inference.operations.sum_checks import pool_sum_problems, sum_problems
from inference.refusals.records import refusal_problems
from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent
from tenants.money import decimal_dollars
from tests.support.figures.asking import (
    BY_HOUR,
    RANGE,
    all_rows,
    by_group,
    check_percentiles,
    days,
    file_rows,
    in_json,
    this_month,
    told_of,
)
from tests.support.figures.direct_sums import (
    COLUMNS,
    COUNTERS,
    LATENCIES,
    USES,
    asked,
    summed,
)
from tests.support.figures.world import REQUESTS, World

pytestmark = pytest.mark.django_db


def test_what_was_told_is_on_record_and_the_checks_find_nothing(world: World) -> None:
    [(records, attempts, wasted)] = asked(
        "SELECT (SELECT count(*) FROM inference_usagerecord), count(*), sum(completion_tokens)"
        " FROM inference_wastedattempt"
    )
    assert records == REQUESTS and attempts > 10 and wasted > 0
    [total] = summed(*days(RANGE)).values()
    assert total["requests"] == REQUESTS and all(total[name] for name in COUNTERS)
    assert asked("SELECT count(*) FROM inference_usagequarantine") == [(0,)]
    with operator_scope("test"):
        for problems in (sum_problems, pool_sum_problems, label_problems, refusal_problems):
            assert list(problems()) == []


def test_the_ledger_has_what_the_records_cost(world: World) -> None:
    of_ledger = asked(
        "SELECT tenant_id, sum(nanos)::bigint FROM ("
        " SELECT tenant_id, -nanos AS nanos FROM billing_ledgerentry WHERE account = 'revenue'"
        " UNION ALL SELECT tenant_id, nanos FROM billing_waitingcharge) AS charged"
        " GROUP BY tenant_id"
    )
    of_records = summed(*days(RANGE), "tenant_id")
    assert dict(of_ledger) == {key: row["cost_nanos"] for (key,), row in of_records.items()}


@pytest.mark.parametrize(
    ("group_by", "columns", "query"),
    [
        ("", (), RANGE),
        ("day", ("day",), RANGE),
        ("hour", ("hour",), {**BY_HOUR, "granularity": "hour"}),
        ("hour,model", ("hour", "model"), {**BY_HOUR, "granularity": "hour"}),
        ("project", ("project_id",), RANGE),
        ("api_key", ("api_key_id",), RANGE),
        ("created_by", ("created_by_id",), RANGE),
        ("model,adapter", ("model", "adapter"), RANGE),
        ("day,tier", ("day", "tier"), RANGE),
    ],
)
def test_reports_of_a_tenant_are_the_sums_of_its_records(
    tenant: Client,
    world: World,
    group_by: str,
    columns: tuple[str, ...],
    query: dict[str, str],
) -> None:
    if not group_by:
        group_by, columns = "tier", ("tier",)
    query = {**query, "group_by": group_by}
    address = f"/api/v1/tenants/{world.acme.id}"
    expected = in_json(summed(*days(query), *columns, tenant_id=world.acme.id))
    usage = by_group(all_rows(tenant, f"{address}/usage", query), *columns)
    costs = by_group(all_rows(tenant, f"{address}/costs", query), *columns)
    files = file_rows(tenant, f"{address}/usage", {**query, "format": "csv"})
    assert usage.keys() == costs.keys() == expected.keys()
    assert len(files) == len(expected)
    of_file = by_group(files, *columns)
    for key, right in expected.items():
        in_file = of_file[tuple(each or "" for each in key)]
        for name in COUNTERS[:-1]:
            assert usage[key][name] == right[name] == int(in_file[name]), (key, name)
        assert costs[key]["cost_nanos"] == right["cost_nanos"]
        assert costs[key]["cost_dollars"] == decimal_dollars(right["cost_nanos"], digits=9)
        for name in LATENCIES:
            check_percentiles(list(usage[key][name].values()), right[name])
            check_percentiles([in_file[f"{name}_p{p}"] for p in (50, 95, 99)], right[name])
    total = tenant.get(f"{address}/costs", query).json()["total_cost_nanos"]
    assert total == sum(row["cost_nanos"] for row in expected.values()) > 0


def test_errors_are_counted_by_their_code(tenant: Client, world: World) -> None:
    query = {**RANGE, "group_by": "day,api_key"}
    expected = asked(
        f"{USES} SELECT {COLUMNS['day']}, api_key_id, code, count(*) FROM uses"  # noqa: S608
        " WHERE tenant_id = %s AND outcome IN ('refused', 'expired', 'failed') GROUP BY 1, 2, 3",
        [world.acme.id],
    )
    address = f"/api/v1/tenants/{world.acme.id}/errors"
    rows = all_rows(tenant, address, query)
    told = Counter({(row["date"], row["api_key_id"], row["code"]): row["requests"] for row in rows})
    assert told == {(str(day), str(key), code): each for day, key, code, each in expected}
    assert {row["code"] for row in rows} >= {"unknown", "worker_lost", "context_length_exceeded"}
    files = file_rows(tenant, address, {**query, "format": "csv"})
    assert sum(int(row["requests"]) for row in files) == told.total()


@pytest.mark.parametrize(
    ("group_by", "columns"),
    [
        ("tenant", ("tenant_id",)),
        ("model,tier", ("model", "tier")),
        ("pool,service_class", ("pool", "service_class")),
        ("day,pool", ("day", "pool")),
    ],
)
def test_reports_of_operators_are_the_sums_of_all_records(
    operator: Client, world: World, group_by: str, columns: tuple[str, ...]
) -> None:
    query = {**RANGE, "group_by": group_by}
    expected = in_json(summed(*days(RANGE), *columns))
    usage = by_group(all_rows(operator, "/api/v1/usage", query), *columns)
    costs = by_group(all_rows(operator, "/api/v1/costs", query), *columns)
    assert usage.keys() == costs.keys() == expected.keys()
    for key, right in expected.items():
        assert {name: usage[key][name] for name in COUNTERS[:-1]} == {
            name: right[name] for name in COUNTERS[:-1]
        }
        assert costs[key]["cost_nanos"] == right["cost_nanos"]
        for name in LATENCIES:
            check_percentiles(list(usage[key][name].values()), right[name])


def test_what_an_operator_looks_at_is_in_the_log_once_an_hour(
    operator: Client, world: World
) -> None:
    cache.clear()
    member = Client()
    member.force_login(world.admin)
    of_acme = {**RANGE, "tenant_id": str(world.acme.id)}
    for client, query in ((operator, of_acme), (operator, of_acme), (operator, RANGE)):
        for address in ("/api/v1/usage", "/api/v1/costs"):
            assert client.get(address, query).status_code == 200
    assert operator.get("/api/v1/usage", {**RANGE, "tenant_id": str(uuid4())}).status_code == 200
    assert member.get("/api/v1/usage", of_acme).status_code == 200
    with operator_scope("test"):
        seal_now()
        events = AuditEvent.objects.filter(verb="reported").order_by("sequence")
        told = Counter((event.tenant_id, event.changed_fields["report"]) for event in events)
        assert {event.actor_id for event in events} == {str(world.operator.pk)}
    assert told == {
        (tenant_id, report): 1
        for tenant_id in (world.acme.id, None)
        for report in ("usage", "cost")
    }


@pytest.mark.parametrize("label", ["user", "metadata.team"])
def test_usage_by_label_is_the_sum_of_what_bears_it(
    tenant: Client, world: World, label: str
) -> None:
    sums = ", ".join(
        f"count(*) FILTER (WHERE outcome = '{name}')"
        if name in COUNTERS[1:6]
        else f"sum({name})::bigint"
        for name in COUNTERS
    )
    expected = asked(
        f"{USES} SELECT {COLUMNS['day']}, project_id, labels ->> %s, {sums} FROM uses"  # noqa: S608
        " WHERE tenant_id = %s AND labels ? %s GROUP BY 1, 2, 3",
        [label, world.acme.id, label],
    )
    assert expected
    query = {**RANGE, "name": label, "group_by": "date,project_id,value"}
    address = f"/api/v1/tenants/{world.acme.id}/usage/labels"
    rows = all_rows(tenant, address, query)
    told = {
        (row["date"], row["project_id"], row["value"]): [row[name] for name in COUNTERS]
        for row in rows
    }
    assert told == {
        (str(day), str(project), value): [int(each) for each in right]
        for day, project, value, *right in expected
    }
    in_file = file_rows(tenant, address, {**query, "format": "csv"})
    assert len(in_file) == len(rows)
    for name in COUNTERS:
        assert sum(int(row[name]) for row in in_file) == sum(row[name] for row in rows)
    assert [row["value"].lstrip("'") for row in in_file] == [row["value"] for row in rows]


def test_a_tenants_metrics_are_the_sums_of_its_month(tenant: Client, world: World) -> None:
    columns = ("model", "adapter", "tier")
    expected = summed(*this_month(), *columns, tenant_id=world.acme.id)
    text = tenant.get(f"/api/v1/tenants/{world.acme.id}/metrics").content.decode()
    told = {
        (sample.name, *(sample.labels.get(name) for name in (*columns, "outcome", "kind"))): sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "le" not in sample.labels
    }
    for key, right in expected.items():
        for outcome in COUNTERS[1:6]:
            requests = told["penstock_tenant_requests_total", *key, outcome, None].value
            assert requests == right[outcome]
        for kind in ("prompt", "cached", "completion", "reasoning", "wasted"):
            tokens = told["penstock_tenant_tokens_total", *key, None, kind].value
            assert tokens == right[f"{kind}_tokens"]
        dollars = told["penstock_tenant_cost_dollars_total", *key, None, None].value
        assert round(dollars * 10**9) == right["cost_nanos"]


def test_each_request_is_told_as_it_is_on_record(tenant: Client, world: World) -> None:
    columns = (
        "cost_nanos", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens",
        "queue_ms", "ttft_ms", "outcome", "error_code", "model", "adapter", "tier",
    )  # fmt: skip
    expected = {
        str(request_id): dict(zip(columns, row, strict=True))
        for request_id, *row in asked(
            f"SELECT request_id, {', '.join(columns)} FROM inference_usagerecord"  # noqa: S608
            " WHERE tenant_id = %s",
            [world.acme.id],
        )
    }
    address, query = f"/api/v1/tenants/{world.acme.id}/requests", {"since": RANGE["from"]}
    rows = all_rows(tenant, address, query)
    assert {row["id"]: {name: row[name] for name in columns} for row in rows} == expected
    for row in rows:
        assert row["cost_dollars"] == decimal_dollars(row["cost_nanos"], digits=9)
    costs = [row["cost_nanos"] for row in expected.values()]
    bound = sorted(costs)[len(costs) // 2]
    dear = all_rows(tenant, address, {**query, "cost_over": decimal_dollars(bound, digits=9)})
    assert len(dear) == sum(each > bound for each in costs)
    failed = all_rows(tenant, address, {**query, "outcome": "failed"})
    assert len(failed) == sum(row["outcome"] == "failed" for row in expected.values()) > 0


def test_one_request_tells_its_retries_and_what_they_wasted(tenant: Client, world: World) -> None:
    found = asked(
        "SELECT record.request_id, record.cost_nanos, record.wasted_tokens,"
        " wasted.completion_tokens FROM inference_usagerecord AS record"
        " JOIN inference_wastedattempt AS wasted USING (request_id)"
        " WHERE record.tenant_id = %s AND wasted.completion_tokens > 1"
        " ORDER BY record.wasted_tokens DESC, request_id LIMIT 5",
        [world.acme.id],
    )
    for request_id, cost_nanos, wasted, wasted_before in found:
        told = tenant.get(f"/api/v1/tenants/{world.acme.id}/requests/{request_id}").json()
        steps = {step["step"]: step["wasted_tokens"] for step in told["timeline"]}
        assert (steps["attempt_ended"], steps["ended"]) == (wasted_before, wasted)
        assert (told["attempts"], told["cost_nanos"]) == (2, cost_nanos)
        page = tenant.get(f"/t/{world.acme.id}/requests/{request_id}").content.decode()
        assert f"{wasted_before:,} tokens unbilled" in page
    assert len(found) == 5 and found[0][2] > 0


@pytest.mark.parametrize(
    ("group_by", "names"),
    [
        ("day", ("day",)),
        ("code,limit,scope", ("code", "limit", "scope")),
        ("project,api_key,model", ("project_id", "api_key_id", "model")),
    ],
)
def test_reports_of_refusals_are_what_gateways_told(
    tenant: Client, world: World, group_by: str, names: tuple[str, ...]
) -> None:
    expected = told_of(world, *names, tenant_id=str(world.acme.id))
    address, query = f"/api/v1/tenants/{world.acme.id}/refusals", {**RANGE, "group_by": group_by}
    rows = by_group(all_rows(tenant, address, query), *names)
    told = {tuple(each or "" for each in key): row["refusals"] for key, row in rows.items()}
    assert told == expected
    assert tenant.get(address, query).json()["total"] == expected.total()
    in_file = file_rows(tenant, address, {**query, "format": "csv"})
    assert sum(int(row["refusals"]) for row in in_file) == expected.total()
    [(by_hour,)] = asked(
        "SELECT sum(count) FROM inference_refusalrollup WHERE tenant_id = %s", [world.acme.id]
    )
    assert by_hour == expected.total()
