"""The operators' first page: what needs attention, or what somebody may see in its place."""

import pytest
from django.test import Client
from django.urls import reverse

from tests.control_plane.operator_site.records import somebody_who_may

pytestmark = pytest.mark.django_db
INDEX = "/admin/"
ALL_PAGES = "/admin/pages/"
LATENCY = "/admin/dashboards/latency/"


def test_the_first_page_is_what_needs_attention(operator: Client) -> None:
    html = operator.get(INDEX).content.decode()
    assert '<h1 class="dash-hidden">What needs attention</h1>' in html
    assert 'hx-get="/admin/dashboards/attention/panels"' in html
    assert operator.post(INDEX).status_code == 405


@pytest.mark.parametrize(("address", "milliseconds"), [(INDEX, "2000"), (LATENCY, "10000")])
def test_a_range_of_days_is_asked_for_more_rarely_than_what_is_live(
    operator: Client, address: str, milliseconds: str
) -> None:
    assert f'data-live-ms="{milliseconds}"' in operator.get(address).content.decode()


def test_the_list_of_all_pages_is_one_click_away(operator: Client) -> None:
    assert f'href="{ALL_PAGES}"' in operator.get(INDEX).content.decode()
    html = operator.get(ALL_PAGES).content.decode()
    content = html.split('id="content"')[1]
    for page in ("admin:tenants_tenant_changelist", "admin:billing_invoice_changelist"):
        assert reverse(page) in content


@pytest.mark.parametrize(
    ("permission", "lands_at"),
    [
        ("view_usagerecord", LATENCY),
        ("view_poolcost", "/admin/dashboards/money/"),
        ("view_tier", ALL_PAGES),
    ],
)
def test_who_may_not_see_it_lands_where_they_may(
    client: Client, permission: str, lands_at: str
) -> None:
    client.force_login(somebody_who_may(permission))
    answer = client.get(INDEX, follow=True)
    assert (answer.status_code, answer.redirect_chain) == (200, [(lands_at, 302)])


def test_strangers_are_sent_to_sign_in(client: Client) -> None:
    for address in (INDEX, ALL_PAGES):
        answer = client.get(address)
        assert (answer.status_code, answer["Location"].split("?")[0]) == (302, "/admin/login/")
