"""Names are one line, at every door that takes one."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from tenants.access.api_keys import issue_api_key
from tenants.access.projects import add_project
from tenants.access.sign_up import new_account
from tenants.isolation.scoping import tenant_scope
from tenants.models import Project
from tenants.names import as_mailed, one_line

BAD = ["a\nb", "a\rb", "a\tb", "a\x00b", "a\x1b[31mb", "a\u2028b", "\u202egnp.exe", "a\x85b"]
GOOD = [
    "Acme",
    "Ærø & Søn",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "日本 1",
    "👩\u200d💻 lab",
]


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_one_line_is_no_name(name: str) -> None:
    with pytest.raises(ValidationError) as caught:
        one_line(name)
    assert caught.value.code == "not_one_line"


@pytest.mark.parametrize("name", GOOD)
def test_names_of_all_scripts_are_names(name: str) -> None:
    one_line(name)
    assert as_mailed(name) == name


@pytest.mark.parametrize(
    "text", ["https://evil.example/x", "evil.example", "pay@evil.example", "www.evil.example/a"]
)
def test_no_mail_program_makes_a_link_of_a_name(text: str) -> None:
    assert text not in as_mailed(f"Acme {text} now")
    assert "." not in as_mailed(text).replace(". ", "")
    assert len(as_mailed("x" * 500)) == 80


def _rename(project: Project, name: str) -> None:
    project.tenant.rename(name)


def _project(project: Project, name: str) -> None:
    add_project(project.tenant, name=name)


def _key(project: Project, name: str) -> None:
    issue_api_key(project, name=name)


def _person(_: Project, name: str) -> None:
    new_account("carol@acme.example", name=name, password="correct horse battery staple")


@pytest.mark.django_db
@pytest.mark.parametrize("verb", [_rename, _project, _key, _person])
def test_every_verb_that_takes_a_name_refuses_one_of_two_lines(
    acme: Project, verb: Callable[[Project, str], Any]
) -> None:
    with tenant_scope(acme.tenant_id), pytest.raises(ValidationError):
        verb(acme, "Acme\nBcc: all@example.org")
