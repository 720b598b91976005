"""The page of refused requests: reasons with their share, sentences with what to do, the file."""

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from control_plane.dashboard.pages import keys
from control_plane.dashboard.pages.refusals.words import CODES, advice, reason_word
from control_plane.management_api.openapi.errors import CODES as DESCRIBED

from tenants.access.projects import add_project
from tenants.isolation.scoping import operator_scope
from tests.control_plane.dashboard.conftest import SignIn
from tests.control_plane.dashboard.markup import problems_of
from tests.support.refused.on_record import notice_of, of_key, refuse
from tests.support.two_tenants import CANARY, TwoTenants

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}
NOW = datetime.now(UTC)
UNKNOWN = {"code": "model_not_found", "model": "(unknown)", "limit": "", "scope": ""}
SCRIPT = "<script>alert(1)</script>"


def text_of(answer: Any) -> str:
    """What of a page is read, its tags left out."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.content.decode())).split())


@pytest.fixture
def refused(houses: TwoTenants) -> None:
    acme, globex = houses.acme.key, houses.globex.key
    refuse(
        of_key(acme, NOW, count=300),
        of_key(acme, NOW, count=1, **UNKNOWN),
        of_key(acme, NOW - timedelta(days=10), count=100, code="saturated"),
        notice_of(acme, NOW, model=SCRIPT),
        notice_of(acme, NOW, request_id="", status=404, message="No such model.", **UNKNOWN),
        of_key(globex, NOW, count=5000, code=CANARY),
        notice_of(globex, NOW, message=CANARY),
    )


def test_the_page_says_how_many_were_refused_why_and_what_to_do(
    signed_in: SignIn, acme_address: str, houses: TwoTenants, refused: None
) -> None:
    answer = signed_in("viewer").get(f"{acme_address}refusals")
    text = text_of(answer)
    assert "Refused 301 requests" in text and "201 % more than before" in text
    assert "Too many requests a minute requests_per_minute_exceeded" in text
    assert "requests_per_minute of the key" in text and "100 % 300" in text
    assert "Unknown model model_not_found" in text and "< 1 % 1" in text
    assert "This API key has reached its limit of 60 requests a minute. 429" in text
    assert "Raise the limit of this key, or send less with it. Limits" in text
    assert "No such model. 404" in text
    content = answer.content.decode()
    assert f'href="{acme_address}limits"' in content
    assert f'href="{acme_address}keys/{houses.acme.key.id}"' in content
    assert SCRIPT not in content and CANARY not in content
    assert problems_of(content) == []


def test_the_range_and_the_filters_stand_in_the_address(
    signed_in: SignIn, acme_address: str, houses: TwoTenants, refused: None
) -> None:
    client = signed_in("viewer")
    earlier = (NOW - timedelta(days=10)).date()
    narrowed: list[tuple[dict[str, Any], str]] = [
        ({"from": earlier, "to": earlier}, "Refused 100 requests"),
        ({"from": earlier}, "Refused 401 requests"),
        ({"to": earlier}, "Refused 100 requests"),
        ({"code": "model_not_found"}, "Refused 1 requests"),
        ({"project_id": houses.acme.project.id}, "Refused 301 requests"),
        ({"api_key_id": houses.acme.key.id, "model": "small"}, "Refused 300 requests"),
        ({"model": "nothing"}, "No refused requests match these filters."),
    ]
    for query, expected in narrowed:
        answer = client.get(f"{acme_address}refusals", query, headers=HTMX)
        assert expected in text_of(answer), query
        assert "<html" not in answer.content.decode()
    query = {"from": earlier, "code": "saturated"}
    call = text_of(client.get(f"{acme_address}refusals", query))
    today = datetime.now(UTC).date()
    assert f"/refusals?from={earlier}&to={today}&group_by=code,limit,scope&code=saturated" in call


def test_a_link_may_name_a_project_that_is_not_among_the_choices(
    signed_in: SignIn,
    acme_address: str,
    houses: TwoTenants,
    refused: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keys, "_MOST_PROJECTS", 1)
    with operator_scope("test"):
        add_project(houses.acme.tenant, name="newer")
    query = {"project_id": str(houses.acme.project.id)}
    answer = signed_in("viewer").get(f"{acme_address}refusals", query)
    assert answer.context["filters"].errors == {}
    assert "Refused 301 requests" in text_of(answer)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"from": "2026-03-02", "to": "2026-03-01"}, "'from' must not be after 'to'."),
        ({"from": "2024-01-01", "to": "2026-03-01"}, "Ask for at most 366 days at once."),
        ({"from": "yesterday"}, "Enter a valid date."),
        ({"api_key_id": "mine"}, "Enter a valid UUID."),
        ({"project_id": "mine"}, "Select a valid choice."),
        ({"code": SCRIPT}, "Select a valid choice."),
        ({"model": "m" * 201}, "at most 200 characters"),
        ({"cursor": "mine"}, "Refused 301 requests"),
    ],
)
def test_a_filter_that_is_wrong_says_so_and_narrows_nothing(
    signed_in: SignIn, acme_address: str, refused: None, query: dict[str, str], said: str
) -> None:
    client = signed_in("viewer")
    for page in ("refusals", "refusals/export.csv"):
        answer = client.get(f"{acme_address}{page}", query)
        assert answer.status_code == 200
        assert SCRIPT not in answer.content.decode()
    text = text_of(client.get(f"{acme_address}refusals", query))
    assert said in text and "Refused 301 requests" in text


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"from": "0001-01-01", "to": "0001-01-02"}, "Choose a day from 2000 on."),
        ({"from": "", "to": "0001-01-01"}, "Choose a day from 2000 on."),
        ({"to": "2000-01-01"}, "No request was refused in these days."),
        ({"from": "9999-12-30", "to": "9999-12-31"}, "No request was refused in these days."),
    ],
)
def test_the_ends_of_the_calendar_have_no_refusals(
    signed_in: SignIn, acme_address: str, refused: None, query: dict[str, str], said: str
) -> None:
    client = signed_in("viewer")
    assert client.get(f"{acme_address}refusals/export.csv", query).status_code == 200
    assert said in text_of(client.get(f"{acme_address}refusals", query))


def test_where_nothing_was_refused_the_page_says_so(signed_in: SignIn, acme_address: str) -> None:
    text = text_of(signed_in("viewer").get(f"{acme_address}refusals"))
    assert "No request was refused in these days." in text
    assert "/refusals?from=" in text


def test_the_file_has_every_row_of_the_range(
    signed_in: SignIn, acme_address: str, houses: TwoTenants, refused: None
) -> None:
    answer = signed_in("viewer").get(f"{acme_address}refusals/export.csv", {"code": "saturated"})
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Cache-Control"] == "no-store"
    assert list(csv.reader(io.StringIO(answer.content.decode())))[1:] == []
    answer = signed_in("viewer").get(f"{acme_address}refusals/export.csv")
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert sorted(int(row["refusals"]) for row in rows) == [1, 300]
    assert {row["api_key_id"] for row in rows} == {str(houses.acme.key.id)}
    assert CANARY not in answer.content.decode()


def test_newest_come_by_pages_of_twenty_five(
    signed_in: SignIn, acme_address: str, houses: TwoTenants
) -> None:
    key = houses.acme.key
    told = [notice_of(key, NOW - timedelta(seconds=n), message=f"No. {n}.") for n in range(30)]
    refuse(of_key(key, NOW, count=30), *told)
    client = signed_in("viewer")
    first = client.get(f"{acme_address}refusals").content.decode()
    assert "No. 24." in first and "No. 25." not in first
    found = re.search(r'rel="next" href="([^"]+)"', first)
    assert found is not None
    second = client.get(unescape(found[1])).content.decode()
    assert "No. 25." in second and "No. 29." in second and "No. 24." not in second


def test_every_reason_has_words_of_its_own_and_is_a_code_of_the_api() -> None:
    assert set(CODES) <= DESCRIBED.keys()
    words = [reason_word(code) for code in CODES]
    assert len(set(words)) == len(words)


@pytest.mark.parametrize(
    ("code", "limit", "scope", "status", "place"),
    [
        ("insufficient_quota", "balance", "tenant", 429, "billing"),
        ("insufficient_quota", "spend_per_month", "project", 429, "limits"),
        ("tokens_per_day_exceeded", "tokens_per_day", "tier", 429, "limits"),
        ("saturated", "ttft_target_ms", "tier", 429, "project"),
        ("queue_full", "", "", 503, None),
        ("rate_limit_exceeded", "", "", 429, None),
        ("invalid_request", "", "", 400, "API"),
        ("api_key_expired", "", "", 401, "key"),
    ],
)
def test_what_to_do_leads_to_where_it_is_changed(
    code: str, limit: str, scope: str, status: int, place: str | None
) -> None:
    what = advice(code, limit, scope, status)
    assert what.text.endswith(".")
    assert (None if what.place is None else what.place.value) == place


def test_money_that_is_used_up_says_which() -> None:
    assert reason_word("insufficient_quota", "balance") == "Credit used up"
    assert reason_word("insufficient_quota", "spend_per_month") == "Budget of the month used up"
