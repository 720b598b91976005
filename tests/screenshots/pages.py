"""Which pages are taken, and for whom. A new page gets its line here."""

from collections.abc import Callable
from dataclasses import dataclass

from playwright.sync_api import Page

from tenants.models import User
from tests.screenshots.cast import Cast


@dataclass(frozen=True, kw_only=True)
class Shot:
    """A picture's name, whose session it shows (None: nobody's), its address, and what is done
    there first."""

    name: str
    user: User | None
    address: str
    first: Callable[[Page], None] | None = None


def shots(cast: Cast) -> list[Shot]:
    acme, alice = f"/t/{cast.acme.id}/", cast.alice
    quiet, suspended = f"/t/{cast.long_list.id}/", f"/t/{cast.suspended.id}/"
    return [
        Shot(name="front-page", user=None, address="/"),
        Shot(name="not-found", user=None, address="/nothing"),
        Shot(name="organisations", user=alice, address="/t/"),
        Shot(name="organisations-none", user=cast.nobody, address="/t/"),
        Shot(name="overview", user=alice, address=acme),
        Shot(name="overview-quiet", user=alice, address=quiet),
        Shot(name="overview-suspended", user=alice, address=suspended),
        Shot(name="switcher", user=alice, address=acme, first=_switcher),
        Shot(name="account-menu", user=alice, address=acme, first=_account),
        Shot(name="projects", user=alice, address=f"{acme}projects"),
        Shot(name="projects-long", user=alice, address=f"{quiet}projects"),
        Shot(name="projects-empty", user=alice, address=f"{suspended}projects"),
        Shot(name="projects-viewer", user=cast.viewer, address=f"{acme}projects"),
        Shot(name="project-new", user=alice, address=f"{acme}projects/new"),
        Shot(name="project-new-wrong", user=alice, address=f"{acme}projects/new", first=_wrong),
        Shot(name="project", user=alice, address=f"{acme}projects/{cast.project.id}"),
        Shot(name="project-viewer", user=cast.viewer, address=f"{acme}projects/{cast.project.id}"),
        Shot(name="project-created", user=alice, address=f"{quiet}projects/new", first=_create),
        Shot(name="members", user=alice, address=f"{acme}members"),
        Shot(name="members-refused", user=cast.viewer, address=f"{acme}members"),
        Shot(name="account", user=alice, address="/account/"),
        Shot(name="account-login", user=None, address="/account/login/"),
        Shot(name="account-login-wrong", user=None, address="/account/login/", first=_sign_in),
        Shot(name="account-reset", user=None, address="/account/password/reset/"),
        Shot(name="account-signup", user=None, address="/account/signup/"),
        Shot(name="account-sessions", user=alice, address="/account/sessions/"),
        Shot(name="account-two-step", user=alice, address="/account/2fa/"),
        Shot(name="account-password", user=alice, address="/account/password/change/"),
        Shot(name="components", user=cast.ops, address="/operators/components"),
        Shot(name="dialog", user=cast.ops, address="/operators/components", first=_dialog),
    ]


def _switcher(page: Page) -> None:
    page.locator("[popovertarget=organisations]").click()
    page.locator("#organisations li").first.wait_for()


def _account(page: Page) -> None:
    page.locator("[popovertarget=account-menu]").click()


def _sign_in(page: Page) -> None:
    page.locator("[name=login]").fill("nobody@acme.example")
    page.locator("[name=password]").fill("not the password")
    page.locator("main [type=submit]").click()
    page.wait_for_load_state()


def _wrong(page: Page) -> None:
    page.locator("[name=name]").fill("web")
    page.locator("[value=smaller_model]").check()
    page.locator("[type=submit]").last.click()
    page.locator(".field-error").first.wait_for()


def _create(page: Page) -> None:
    width = page.viewport_size or {"width": 0}
    page.locator("[name=name]").fill(f"playground-{width['width']}-{_scheme(page)}")
    page.locator("form.form [type=submit]").click()
    page.wait_for_url("**/projects")


def _scheme(page: Page) -> str:
    is_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    return "dark" if is_dark else "light"


def _dialog(page: Page) -> None:
    page.locator("a.button[data-opens]").click()
    page.locator("dialog input").fill("ci-")
