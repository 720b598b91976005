"""What becomes of a project's requests when a model is saturated, by every door that sets it."""

from typing import Any

import pytest
from psycopg import errors

from inference.models import Pool, ServedModel
from tenants.access.projects import change_project
from tenants.audit.log import seal_now
from tenants.models import AuditEvent, Project
from tenants.offboarding.export import tenant_records
from tests.support.commands import attempt, refused, run
from tests.support.refusals import database_refuses, raises_invalid

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]


def a_model(name: str, **fields: Any) -> ServedModel:
    pool = Pool.objects.create(name=f"pool-of-{name}")
    return ServedModel.objects.create(name=name, pool=pool, context_tokens=2048, **fields)


def test_a_project_waits_unless_it_says_otherwise(acme: Project) -> None:
    assert (acme.on_saturation, acme.smaller_model) == ("wait", "")


@pytest.mark.parametrize(
    ("choice", "model", "code", "field"),
    [
        ("smaller_model", "", "required", "smaller_model"),
        ("smaller_model", "nonesuch", "unknown_model", "smaller_model"),
        ("smaller_model", "globexs", "unknown_model", "smaller_model"),
        ("smaller_model", "disabled", "unknown_model", "smaller_model"),
        ("refuse", "small", "not_used", "smaller_model"),
        ("panic", "", "invalid_choice", "on_saturation"),
    ],
)
def test_a_choice_that_cannot_be_served_is_refused_with_the_reason(
    acme: Project, globex: Project, choice: str, model: str, code: str, field: str
) -> None:
    a_model("small")
    a_model("disabled", is_enabled=False)
    a_model("globexs").tenants.add(globex.tenant)
    with raises_invalid(code, field):
        change_project(acme, on_saturation=choice, smaller_model=model)
    # Nor when it is asked for once more with the same record.
    with raises_invalid(code, field):
        change_project(acme, on_saturation=choice, smaller_model=model)
    acme.refresh_from_db()
    assert acme.on_saturation == "wait"


def test_another_choice_forgets_the_smaller_model(acme: Project) -> None:
    a_model("small")
    change_project(acme, on_saturation="smaller_model", smaller_model="small")
    change_project(acme, on_saturation="refuse")
    acme.refresh_from_db()
    assert (acme.on_saturation, acme.smaller_model) == ("refuse", "")


def test_a_model_that_went_away_does_not_stand_in_the_way_of_other_changes(acme: Project) -> None:
    small = a_model("small")
    change_project(acme, on_saturation="smaller_model", smaller_model="small")
    small.delete()
    change_project(acme, name="renamed")
    acme.refresh_from_db()
    assert (acme.name, acme.smaller_model) == ("renamed", "small")


def test_postgresql_itself_keeps_choice_and_model_together(acme: Project) -> None:
    with database_refuses(errors.CheckViolation, constraint="project_smaller_model_if_used"):
        Project.objects.filter(id=acme.id).update(on_saturation="smaller_model")


def test_the_command_sets_it_and_says_what_is_wrong(acme: Project) -> None:
    a_model("small")
    facts = run("set_saturation", "Acme", "smaller_model", "--model", "small")
    assert (facts["on_saturation"], facts["smaller_model"]) == ("smaller_model", "small")
    assert run("set_saturation", "Acme", "wait", "--project", "default")["smaller_model"] is None
    with raises_invalid("unknown_model", "smaller_model"):
        attempt("set_saturation", "Acme", "smaller_model", "--model", "big")
    told = refused("set_saturation", "Acme", "refuse", "--project", "web")
    assert "Acme" in told and "'web'" in told


def test_it_is_audited_and_exported(acme: Project) -> None:
    a_model("small")
    change_project(acme, on_saturation="smaller_model", smaller_model="small")
    seal_now()
    event = AuditEvent.objects.select_related("personal").get(record_id=acme.id, verb="changed")
    assert event.changed_fields == {
        "on_saturation": ["wait", "smaller_model"],
        "smaller_model": ["", "small"],
    }
    (record,) = (each for each in tenant_records(acme.tenant) if each["kind"] == "project")
    assert (record["on_saturation"], record["smaller_model"]) == ("smaller_model", "small")
