"""Projects as pages: the list, a new one, a change of one."""

import re
from typing import Any

import pytest

from tenants.access.projects import add_project
from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent, Project, Tier
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import TwoTenants

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


def form(**changes: str) -> dict[str, str]:
    return {"name": "web", "on_saturation": "wait", "smaller_model": ""} | changes


def names_of(answer: Any) -> list[str]:
    return [project.name for project in answer.context["page"].rows]


def test_a_project_is_created_and_stands_in_the_list_and_the_audit_log(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client = signed_in("admin")
    answer = client.post(f"{acme_address}projects/new", form(name=" web "), follow=True)
    assert answer.redirect_chain == [(f"{acme_address}projects", 302)]
    assert names_of(answer) == ["web", "acme project"]
    assert [message.level_tag for message in answer.context["messages"]] == ["success"]
    with operator_scope("test"):
        seal_now()
        event = AuditEvent.objects.filter(record_kind="tenants.Project").latest("sequence")
        assert event.verb == "created"
        assert event.actor_id == str(houses.acme.people["admin"].id)
        assert event.personal.address == "127.0.0.1"


def test_what_was_typed_stays_beside_what_is_wrong_with_it(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client = signed_in("owner")
    taken = form(name="acme project", on_saturation="refuse")
    answer = client.post(f"{acme_address}projects/new", taken)
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == ["name"]
    html = answer.content.decode()
    assert re.search(r'<input[^>]+value="acme project"[^>]+aria-invalid="true"', html)
    assert re.search(r'<input[^>]+value="refuse"[^>]+checked', html)
    assert 'href="#id_name"' in html and 'id="id_name_error"' in html


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": "a\x00b"}, "name"),
        ({"on_saturation": "explode"}, "on_saturation"),
        ({"on_saturation": "smaller_model"}, "smaller_model"),
        ({"on_saturation": "smaller_model", "smaller_model": "zeppelin-model"}, "smaller_model"),
    ],
)
def test_what_is_wrong_is_said_at_its_field_and_nothing_is_created(
    fields: dict[str, str], wrong: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    answer = signed_in("owner").post(f"{acme_address}projects/new", form(**fields))
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == [wrong]
    with operator_scope("test"):
        assert Project.objects.filter(tenant=houses.acme.tenant).count() == 1


def test_htmx_gets_the_form_alone_and_a_full_page_once_it_was_taken(
    signed_in: SignIn, acme_address: str
) -> None:
    client = signed_in("owner")
    wrong = client.post(f"{acme_address}projects/new", form(name=""), headers=HTMX)
    assert wrong.status_code == 422
    assert wrong.content.decode().lstrip().startswith("<form")
    right = client.post(f"{acme_address}projects/new", form(), headers=HTMX)
    assert (right.status_code, right["HX-Redirect"]) == (204, f"{acme_address}projects")


def test_a_project_is_changed_and_forgets_a_model_that_it_has_no_use_for(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, project = signed_in("admin"), houses.acme.project
    address = f"{acme_address}projects/{project.id}"
    model = houses.acme.model.name
    assert f'value="{model}"' in client.get(address).content.decode()
    changed = form(name="api", on_saturation="smaller_model", smaller_model=model)
    assert client.post(address, changed).status_code == 302
    with operator_scope("test"):
        project.refresh_from_db()
        assert (project.name, project.smaller_model) == ("api", model)
    # The select is hidden then, and still sends what was chosen in it.
    assert client.post(address, changed | {"on_saturation": "wait"}).status_code == 302
    with operator_scope("test"):
        project.refresh_from_db()
        assert (project.on_saturation, project.smaller_model) == ("wait", "")


def test_a_change_that_is_refused_leaves_the_heading_as_it_was(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        add_project(houses.acme.tenant, name="web")
    answer = signed_in("admin").post(f"{acme_address}projects/{houses.acme.project.id}", form())
    assert answer.status_code == 422
    assert "<h1>acme project</h1>" in answer.content.decode()


@pytest.mark.parametrize("role", ["developer", "billing", "viewer"])
def test_who_may_not_change_projects_sees_them_and_who_may(
    role: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client = signed_in(role)
    for page in ("projects", f"projects/{houses.acme.project.id}"):
        answer = client.get(f"{acme_address}{page}")
        assert answer.status_code == 200
        assert [str(role) for role in answer.context["writers"]] == ["owner", "admin"]
        html = answer.content.decode()
        assert "acme project" in html and "projects/new" not in html and "<select" not in html
    assert client.get(f"{acme_address}projects/new").status_code == 403
    for page in ("projects/new", f"projects/{houses.acme.project.id}"):
        assert client.post(f"{acme_address}{page}", form()).status_code == 403


def test_long_lists_come_page_by_page_with_or_without_htmx(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        for number in range(30):
            add_project(houses.acme.tenant, name=f"p{number}")
    client, address = signed_in("viewer"), f"{acme_address}projects"
    first = client.get(address)
    assert len(names_of(first)) == 25
    cursor = first.context["page"].next_cursor
    second = client.get(address, {"cursor": cursor})
    assert len(names_of(second)) == 6 and second.context["page"].next_cursor is None
    fragment = client.get(address, {"cursor": cursor}, headers=HTMX)
    assert fragment.content.decode().lstrip().startswith('<div id="list"')
    # From the browser's history the whole page is asked for.
    restored = HTMX | {"HX-History-Restore-Request": "true"}
    assert "<!doctype html>" in client.get(address, headers=restored).content.decode()
    assert names_of(client.get(address, {"cursor": "outdated"})) == names_of(first)


def test_another_tenants_project_is_not_found(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, theirs = signed_in("owner"), houses.globex.project.id
    assert client.get(f"{acme_address}projects/{theirs}").status_code == 404
    assert client.post(f"{acme_address}projects/{theirs}", form()).status_code == 404


def test_a_project_beyond_the_tiers_cap_is_refused_beside_the_form(
    signed_in: SignIn, acme_address: str
) -> None:
    with operator_scope("test"):
        Tier.objects.update(max_projects=1)
    answer = signed_in("owner").post(f"{acme_address}projects/new", form(name="web"))
    assert answer.status_code == 422
    assert "Tier premium allows 1 projects, and there are 1." in answer.content.decode()
    with operator_scope("test"):
        assert Project.objects.filter(name="web").count() == 0
