"""No page but the admin's has anything inline or from elsewhere, and each says so in its policy."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from control_plane.dashboard import urls
from control_plane.dashboard.pages.overview import page
from django.contrib.staticfiles import finders
from django.core.cache import cache
from django.test import Client
from django.urls import URLPattern

from tenants.models import User
from tests.control_plane.dashboard.conftest import SignIn
from tests.control_plane.dashboard.markup import problems_of
from tests.support.places import ROOT
from tests.support.two_tenants import TwoTenants

pytestmark = pytest.mark.django_db
STATIC = ROOT / "platform/control_plane/static"
STRICT = ("default-src 'self'", "base-uri 'none'", "frame-ancestors 'none'", "object-src 'none'")


def routes() -> Iterator[str]:
    for pattern in urls.urlpatterns:
        assert isinstance(pattern, URLPattern)
        yield str(pattern.pattern)


def assert_is_strict(answer: Any) -> None:
    policy = answer["Content-Security-Policy"]
    assert all(part in policy for part in STRICT), policy
    assert "unsafe" not in policy and "http" not in policy
    assert problems_of(answer.content.decode()) == []


@pytest.mark.parametrize("role", ["owner", "viewer"])
@pytest.mark.parametrize("route", sorted(routes()))
def test_every_page_holds_nothing_inline_and_nothing_foreign(
    route: str, role: str, houses: TwoTenants, signed_in: SignIn
) -> None:
    acme = houses.acme
    User.objects.filter(id=acme.people["owner"].id).update(is_staff=True)
    ids = acme.ids
    address = "/" + re.sub(r"<uuid:(\w+)>", lambda match: str(ids[match[1]]), route)
    for client in (signed_in(role), Client()):
        answer = client.get(address)
        if not answer["Content-Type"].startswith("text/html"):
            continue  # a file to keep
        assert_is_strict(answer)
        if answer.status_code == 200:
            fragment = client.get(address, headers={"HX-Request": "true"})
            assert_is_strict(fragment)


def test_a_refused_form_holds_nothing_inline(signed_in: SignIn, acme_address: str) -> None:
    answer = signed_in("owner").post(f"{acme_address}projects/new", {"name": "<b onclick=x>" * 40})
    assert answer.status_code == 422
    assert_is_strict(answer)


@pytest.mark.parametrize("address", ["/nothing", "/t/nothing", "/static/dashboard/nothing.css"])
def test_what_does_not_exist_is_as_strict(address: str, client: Client) -> None:
    answer = client.get(address)
    assert answer.status_code == 404
    assert_is_strict(answer)


def test_a_form_without_its_token_is_refused_on_a_page_of_ours(
    houses: TwoTenants, acme_address: str
) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(houses.acme.people["owner"])
    answer = client.post(f"{acme_address}projects/new", {"name": "web"})
    assert answer.status_code == 403
    assert_is_strict(answer)


def test_a_page_that_breaks_is_as_strict(
    signed_in: SignIn, acme_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(page, "needs_attention", broken)
    client = signed_in("owner")
    client.raise_request_exception = False
    answer = client.get(acme_address)
    assert answer.status_code == 500
    assert b"broken on purpose" not in answer.content
    assert_is_strict(answer)


@pytest.fixture
def _attempts_forgotten() -> Iterator[None]:
    yield
    cache.clear()


@pytest.mark.usefixtures("one_window", "_attempts_forgotten")
def test_the_page_of_too_many_attempts_is_as_strict_below_the_admin(client: Client) -> None:
    form = {"username": "ops@example.org", "password": "wrong"}
    answers = [client.post("/admin/login/", form) for _ in range(11)]
    assert answers[10].status_code == 429
    assert_is_strict(answers[10])


def test_the_front_page_is_stricter_still(client: Client) -> None:
    answer = client.get("/")
    assert "default-src 'none'" in answer["Content-Security-Policy"]
    assert problems_of(answer.content.decode()) == []


def test_the_admin_has_no_policy_that_its_own_scripts_would_break(client: Client) -> None:
    assert "Content-Security-Policy" not in client.get("/admin/login/")


def static_files(*suffixes: str) -> list[Path]:
    files = [path for path in (STATIC / "dashboard").rglob("*") if path.suffix in suffixes]
    return [path for path in files if "vendor" not in path.parts]


def test_styles_and_modules_load_nothing_from_elsewhere() -> None:
    assert len(static_files(".css", ".js")) > 8
    for path in static_files(".css"):
        text = path.read_text(encoding="utf-8")
        assert "url(" not in text and "@import" not in text, path
    for path in static_files(".js"):
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"from \"(?!\.\.?/)|import \"(?!\.\.?/)", text) == [], path
        assert not re.search(r"https?://|\beval\(|new Function|innerHTML|insertAdjacent", text), (
            path
        )


def test_colours_are_named_in_one_file() -> None:
    colour = re.compile(r"#[0-9a-fA-F]{3,8}\b|\b(?:oklch|hsl|lab|lch)\(")
    for path in static_files(".css"):
        if path.name != "tokens.css":
            assert colour.findall(path.read_text(encoding="utf-8")) == [], path


def test_what_pages_link_to_is_there() -> None:
    named = set()
    for path in (ROOT / "templates").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        named |= set(re.findall(r"{% static '([^']+)' %}", text))
    assert {name for name in named if finders.find(name) is None} == set()


def test_every_icon_that_is_used_is_drawn() -> None:
    drawn = set(re.findall(r'symbol id="([^"]+)"', (STATIC / "dashboard/icons.svg").read_text()))
    used = set()
    for path in (ROOT / "templates").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        used |= set(re.findall(r'{% icon "([^"]+)" %}|icon_name="([^"]+)"', text))
    names = {name for pair in used for name in pair if name}
    code = (ROOT / "platform/control_plane/dashboard/navigation.py").read_text()
    names |= set(re.findall(r'icon="([^"]+)"', code))
    assert names - drawn == set()
