"""A tenant's page shows what operators look for first, to whoever may see it."""

import pytest
from django.test import Client
from django.urls import reverse

from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Project
from tests.control_plane.operator_site.records import somebody_who_may

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("one_of_each")]
TITLES = ("Money", "Quotas", "API keys", "Latest requests", "Latest changes")


def shown(client: Client, acme: Project) -> str:
    answer = client.get(reverse("admin:tenants_tenant_change", args=[acme.tenant_id]))
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_tenants_page_shows_money_limits_keys_requests_and_changes(
    operator: Client, acme: Project
) -> None:
    with operator_scope("test"):
        seal_now()
        key = ApiKey.objects.get()
    page = shown(operator, acme)
    for title in TITLES:
        assert f">{title}</h2>" in page
    for said in (
        "Postpaid: usage is billed on the next invoice. Credit $1.00: promotional $0.00, for "
        "missed promises $0.00, prepaid $1.00. Owed $0.00.",
        "Tokens a day",
        "1 active.",
        key.masked,
        ">staging<",
        ">completed<",
        "Latest changes",
    ):
        assert said in page
    for listing in ("billing_invoice", "tenants_apikey", "inference_usagerecord"):
        all_of_them = reverse(f"admin:{listing}_changelist")
        address = f"{all_of_them}?tenant__id__exact={acme.tenant_id}"
        assert address in page
        assert operator.get(address).status_code == 200
    assert reverse("admin:tenants_tenant_money", args=[acme.tenant_id, "top-up"]) in page


@pytest.mark.parametrize(
    ("codename", "title"),
    [
        ("view_ledgertransaction", "Money"),
        ("view_quota", "Quotas"),
        ("view_apikey", "API keys"),
        ("view_usagerecord", "Latest requests"),
        ("view_auditevent", "Latest changes"),
    ],
)
def test_a_panel_is_for_who_may_see_its_records(
    client: Client, acme: Project, codename: str, title: str
) -> None:
    client.force_login(somebody_who_may("view_tenant", codename))
    page = shown(client, acme)
    assert [each for each in TITLES if f">{each}</h2>" in page] == [title]


def test_a_new_tenants_form_has_no_overview(operator: Client) -> None:
    page = operator.get(reverse("admin:tenants_tenant_add")).content.decode()
    assert "tenant-overview" not in page
