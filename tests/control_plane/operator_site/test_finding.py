"""One field for whatever has an id, an e-mail address or a name."""

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from tenants.isolation.scoping import operator_scope
from tenants.models import Project, User
from tests.support.two_tenants import CANARY, House, TwoTenants

pytestmark = pytest.mark.django_db


def found(client: Client, asked: str) -> dict[str, list[str]]:
    """Words by list, of a page that shows several."""
    answer = client.get(reverse("admin:find"), {"q": asked})
    assert answer.status_code == 200, answer.headers.get("Location")
    return {each.title: [word for word, _ in each.rows] for each in answer.context["found"]}


def led_to(client: Client, asked: str) -> str:
    """Where one goes that is the only one."""
    answer = client.get(reverse("admin:find"), {"q": asked})
    assert answer.status_code == 302
    return answer.headers["Location"]


def page(model: str, pk: object) -> str:
    return reverse(f"admin:{model}_change", args=[pk])


def test_an_id_leads_to_what_has_it(operator: Client, houses: TwoTenants) -> None:
    acme = houses.acme
    for model, record in things(acme).items():
        assert led_to(operator, str(record)) == page(model, record)
        assert led_to(operator, f" {record.hex.upper()} ") == page(model, record)


def test_a_request_is_found_by_each_form_of_its_id(operator: Client, houses: TwoTenants) -> None:
    request_id = houses.acme.usage.request_id
    to = page("inference_usagerecord", request_id)
    for form in (request_id.hex, f"chatcmpl-{request_id.hex}", f"cmpl-{request_id}"):
        assert led_to(operator, form) == to


def test_an_address_leads_to_its_person(operator: Client, houses: TwoTenants) -> None:
    viewer = houses.acme.people["viewer"]
    assert led_to(operator, "viewer@acme.example") == page("tenants_user", viewer.pk)


def test_a_name_is_looked_for_in_each_list(operator: Client, houses: TwoTenants) -> None:
    lists = found(operator, "acme")
    assert lists["Tenants"] == ["Acme"]
    assert {"Users", "Served models", "Pools"} <= set(lists)
    assert CANARY not in str(lists)


def test_a_list_shows_ten_and_leads_to_the_others(operator: Client, houses: TwoTenants) -> None:
    with operator_scope("test"):
        for number in range(12):
            Project.objects.create(tenant=houses.acme.tenant, name=f"zebra {number}")
    answer = operator.get(reverse("admin:find"), {"q": "zebra"})
    [projects] = answer.context["found"]
    assert len(projects.rows) == 10 and projects.has_more
    rest = operator.get(projects.address)
    assert rest.content.decode().count("zebra") >= 12


def test_what_nothing_has_is_said_and_written_as_text(operator: Client) -> None:
    for asked in ("<script>alert(1)</script>", str(uuid.uuid4()), "%", "\0", "a" * 201, ""):
        answer = operator.get(reverse("admin:find"), {"q": asked})
        assert answer.status_code == 200
        assert "<script>alert(1)" not in answer.content.decode()
        assert not answer.context["found"]
    assert (
        "at most 200 characters"
        in operator.get(reverse("admin:find"), {"q": "a" * 201}).content.decode()
    )


def test_it_finds_only_what_the_operator_may_see(houses: TwoTenants) -> None:
    with operator_scope("test"):
        clerk = User.objects.create_user("clerk@operators.example", is_staff=True)
        clerk.user_permissions.add(Permission.objects.get(codename="view_tenant"))
    client = Client()
    client.force_login(clerk)
    assert led_to(client, "acme") == page("tenants_tenant", houses.acme.tenant.id)
    answer = client.get(reverse("admin:find"), {"q": str(houses.acme.key.id)})
    assert answer.status_code == 200 and answer.context["found"] == []


def test_who_is_no_operator_signs_in_first(houses: TwoTenants, client: Client) -> None:
    client.force_login(houses.acme.people["owner"])
    answer = client.get(reverse("admin:find"), {"q": "acme"})
    assert answer.status_code == 302 and "/admin/login/" in answer.headers["Location"]


def test_each_page_has_the_field(operator: Client) -> None:
    for address in (reverse("admin:all-pages"), reverse("admin:tenants_tenant_changelist")):
        html = operator.get(address).content.decode()
        assert html.count(f'action="{reverse("admin:find")}"') >= 1


def things(house: House) -> dict[str, Any]:
    return {
        "tenants_tenant": house.tenant.id,
        "tenants_project": house.project.id,
        "tenants_apikey": house.key.id,
        "tenants_quota": house.quota.id,
        "webhooks_endpoint": house.endpoint.id,
        "inference_adapterversion": house.adapter_version.id,
    }
