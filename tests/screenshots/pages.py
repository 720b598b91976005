"""Which pages are taken, and for whom. A new page gets its line here."""

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urljoin

from django.urls import reverse
from playwright.sync_api import Page

from tenants.models import User
from tests.screenshots.cast import Cast
from tests.screenshots.playground import talk


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
    key, quota = f"{acme}keys/{cast.key.id}", f"{acme}limits/{cast.quota.id}"
    new, affairs = f"/t/{cast.new.id}/", cast.affairs
    hook = f"{acme}webhooks/{affairs.endpoint.id}"
    adapter = f"{acme}adapters/{cast.adapters.support.id}"
    ready, refused = cast.adapters.ready.id, cast.adapters.refused.id
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
        Shot(name="overview-first", user=alice, address=new),
        Shot(name="overview-viewer", user=cast.viewer, address=acme),
        Shot(name="keys", user=alice, address=f"{acme}keys"),
        Shot(name="keys-none", user=alice, address=f"{acme}keys?q=nothing"),
        Shot(name="keys-empty", user=alice, address=f"{quiet}keys"),
        Shot(name="keys-viewer", user=cast.viewer, address=f"{acme}keys?state=active"),
        Shot(name="key-new", user=alice, address=f"{acme}keys/new"),
        Shot(name="key-new-wrong", user=alice, address=f"{acme}keys/new", first=_wrong_key),
        Shot(name="key-issued", user=alice, address=f"{new}keys/new", first=_issue_key),
        Shot(name="key", user=alice, address=key),
        Shot(name="key-viewer", user=cast.viewer, address=key),
        Shot(name="key-rotate", user=alice, address=f"{key}/rotate"),
        Shot(name="key-revoke", user=alice, address=f"{key}/revoke"),
        Shot(name="key-revoke-dialog", user=alice, address=key, first=_dialog_of_key),
        Shot(name="models", user=alice, address=f"{acme}models"),
        Shot(name="usage", user=alice, address=f"{acme}usage?by=model&then_by=project"),
        Shot(name="usage-lines", user=alice, address=f"{acme}usage?compared=on&measure=tokens"),
        Shot(name="usage-wrong", user=alice, address=f"{acme}usage?from=2026-03-02&to=2026-03-01"),
        Shot(
            name="usage-hours",
            user=alice,
            address=f"{acme}usage?granularity=hour&days=3&measure=tokens&by=project",
        ),
        Shot(name="usage-views", user=alice, address=f"{acme}usage?by=project", first=_views),
        Shot(name="usage-labels", user=alice, address=f"{acme}usage/labels"),
        Shot(name="usage-labels-none", user=alice, address=f"{quiet}usage/labels"),
        Shot(name="usage-empty", user=alice, address=f"{new}usage"),
        Shot(name="playground", user=alice, address=f"{acme}playground"),
        Shot(name="playground-answers", user=alice, address=f"{acme}playground", first=talk),
        Shot(name="playground-code", user=alice, address=f"{acme}playground", first=_code),
        Shot(name="playground-refused", user=cast.viewer, address=f"{acme}playground"),
        Shot(name="limits", user=alice, address=f"{acme}limits"),
        Shot(name="limits-viewer", user=cast.viewer, address=f"{acme}limits"),
        Shot(name="limits-empty", user=alice, address=f"{quiet}limits"),
        Shot(name="limit-new", user=alice, address=f"{acme}limits/new"),
        Shot(name="limit-new-budget", user=alice, address=f"{acme}limits/new-budget"),
        Shot(name="limit-new-wrong", user=alice, address=f"{acme}limits/new", first=_wrong_limit),
        Shot(name="limit", user=alice, address=quota),
        Shot(name="limit-remove", user=alice, address=f"{quota}/remove"),
        Shot(name="limit-balance-alert", user=alice, address=f"{quiet}limits/balance-alert"),
        Shot(name="billing", user=alice, address=f"{acme}billing"),
        Shot(name="billing-prepaid", user=alice, address=f"{quiet}billing"),
        Shot(name="billing-empty", user=alice, address=f"{suspended}billing"),
        Shot(name="billing-refused", user=cast.viewer, address=f"{acme}billing"),
        Shot(name="billing-transactions", user=alice, address=f"{acme}billing/transactions"),
        Shot(
            name="billing-transaction",
            user=alice,
            address=f"{acme}billing/transactions/{affairs.transaction.id}",
        ),
        Shot(name="billing-invoices", user=alice, address=f"{acme}billing/invoices"),
        Shot(name="billing-invoices-empty", user=alice, address=f"{quiet}billing/invoices"),
        Shot(
            name="billing-invoice",
            user=alice,
            address=f"{acme}billing/invoices/{affairs.invoice.id}",
        ),
        Shot(name="webhooks", user=alice, address=f"{acme}webhooks"),
        Shot(name="webhooks-empty", user=alice, address=f"{quiet}webhooks"),
        Shot(name="webhook-new", user=alice, address=f"{quiet}webhooks/new"),
        Shot(
            name="webhook-new-wrong", user=alice, address=f"{quiet}webhooks/new", first=_wrong_hook
        ),
        Shot(name="webhook-secret", user=alice, address=f"{hook}/rotate", first=_rotate),
        Shot(name="webhook", user=alice, address=hook),
        Shot(name="webhook-rotate", user=alice, address=f"{hook}/rotate"),
        Shot(name="webhook-disable", user=alice, address=f"{hook}/disable"),
        Shot(name="webhook-delete", user=alice, address=f"{hook}/delete"),
        Shot(
            name="webhook-delivery", user=alice, address=f"{hook}/deliveries/{affairs.delivery.id}"
        ),
        Shot(name="adapters", user=alice, address=f"{acme}adapters"),
        Shot(name="adapters-viewer", user=cast.viewer, address=f"{acme}adapters"),
        Shot(name="adapters-empty", user=alice, address=f"{quiet}adapters"),
        Shot(name="adapter-new", user=alice, address=f"{acme}adapters/new"),
        Shot(name="adapter-new-wrong", user=alice, address=f"{acme}adapters/new", first=_no_file),
        Shot(name="adapter", user=alice, address=adapter),
        Shot(name="adapter-viewer", user=cast.viewer, address=adapter),
        Shot(name="adapter-version", user=alice, address=f"{adapter}/versions/{ready}"),
        Shot(name="adapter-version-refused", user=alice, address=f"{adapter}/versions/{refused}"),
        Shot(name="adapter-version-new", user=alice, address=f"{adapter}/versions/new"),
        Shot(
            name="adapter-version-archive",
            user=alice,
            address=f"{adapter}/versions/{ready}/archive",
        ),
        Shot(name="adapter-traffic", user=alice, address=f"{adapter}/traffic"),
        Shot(name="adapter-delete", user=alice, address=f"{adapter}/delete"),
        Shot(name="refusals", user=alice, address=f"{acme}refusals"),
        Shot(name="refusals-none", user=alice, address=f"{quiet}refusals"),
        Shot(name="refusals-wrong", user=alice, address=f"{acme}refusals?from=2020-01-01"),
        Shot(name="requests", user=alice, address=f"{acme}requests"),
        Shot(
            name="requests-filtered",
            user=cast.viewer,
            address=f"{acme}requests?outcome=completed&ttft_over_ms=90&duration_over_ms=soon",
        ),
        Shot(name="requests-none", user=alice, address=f"{acme}requests?model=nothing"),
        Shot(name="requests-empty", user=alice, address=f"{quiet}requests"),
        Shot(name="request", user=alice, address=f"{acme}requests/{cast.request.request_id}"),
        Shot(name="audit", user=alice, address=f"{acme}audit"),
        Shot(name="audit-none", user=alice, address=f"{acme}audit?verb=closed"),
        Shot(name="audit-event", user=alice, address=f"{acme}audit/{affairs.event.id}"),
        Shot(name="settings", user=alice, address=f"{acme}settings"),
        Shot(name="settings-viewer", user=cast.viewer, address=f"{acme}settings"),
        Shot(name="settings-export", user=alice, address=f"{acme}settings/export"),
        Shot(name="settings-close", user=alice, address=f"{acme}settings/close"),
        Shot(name="members", user=alice, address=f"{acme}members"),
        Shot(name="members-invite", user=alice, address=f"{acme}members/invite"),
        Shot(name="member", user=alice, address=f"{acme}members/{cast.developer.id}"),
        Shot(name="member-remove", user=alice, address=f"{acme}members/{cast.developer.id}/remove"),
        Shot(
            name="member-transfer",
            user=alice,
            address=f"{acme}members/{cast.developer.id}/transfer",
        ),
        Shot(name="leave", user=cast.viewer, address=f"{acme}leave"),
        Shot(name="members-refused", user=cast.viewer, address=f"{acme}members"),
        Shot(name="sign-on", user=alice, address=f"{acme}sign-on"),
        Shot(name="sign-on-wrong", user=alice, address=f"{acme}sign-on", first=_no_secret),
        Shot(name="sign-on-remove", user=alice, address=f"{acme}sign-on/remove"),
        Shot(name="entry-refused", user=alice, address=f"/t/{cast.strict.id}/"),
        Shot(name="account-sign-on", user=None, address="/account/sso/"),
        Shot(
            name="account-sign-on-refused",
            user=None,
            address=f"/sso/{cast.strict.id}/",
            first=_sign_on,
        ),
        Shot(name="account-sign-on-start", user=None, address=f"/sso/{cast.acme.id}/"),
        Shot(name="account", user=alice, address="/account/"),
        Shot(name="invitation", user=cast.nobody, address=cast.invitation),
        Shot(name="invitation-new", user=None, address=cast.invitation_of_stranger),
        Shot(name="invitation-refused", user=alice, address=cast.invitation),
        Shot(name="account-login", user=None, address="/account/login/"),
        Shot(name="account-login-wrong", user=None, address="/account/login/", first=_sign_in),
        Shot(name="account-reset", user=None, address="/account/password/reset/"),
        Shot(name="account-signup", user=None, address="/account/signup/"),
        Shot(name="account-sessions", user=alice, address="/account/sessions/"),
        Shot(name="account-two-step", user=alice, address="/account/2fa/"),
        Shot(name="account-passkeys", user=cast.viewer, address="/account/2fa/"),
        Shot(name="account-password", user=alice, address="/account/password/change/"),
        Shot(name="docs-api", user=None, address="/docs/api"),
        Shot(name="docs-api-search", user=None, address="/docs/api?search=keys"),
        Shot(name="docs-api-inference", user=None, address="/docs/api/inference"),
        Shot(name="docs-api-keys", user=alice, address="/docs/api/api-keys"),
        Shot(name="docs-api-sign-on", user=alice, address="/docs/api/single-sign-on"),
        Shot(name="admin-login", user=None, address="/admin/login/"),
        Shot(name="docs-websocket", user=None, address="/docs/websocket"),
        Shot(
            name="acting",
            user=cast.support,
            address=reverse("admin:tenants_tenant_act_as_member", args=[cast.acme.id]),
            first=lambda page: _act(page, acme),
        ),
        Shot(
            name="operators-attention",
            user=cast.support,
            address=reverse("admin:index"),
        ),
        Shot(
            name="operators-latency", user=cast.support, address=reverse("admin:dashboard-latency")
        ),
        Shot(
            name="operators-attainment",
            user=cast.support,
            address=reverse("admin:dashboard-attainment"),
        ),
        Shot(
            name="operators-refusals",
            user=cast.support,
            address=reverse("admin:dashboard-refusals"),
        ),
        Shot(name="operators-money", user=cast.support, address=reverse("admin:dashboard-money")),
        Shot(name="operators-fleet", user=cast.support, address=reverse("admin:dashboard-fleet")),
        Shot(name="operators-queue", user=cast.support, address=reverse("admin:dashboard-queue")),
        Shot(name="operators-pages", user=cast.support, address=reverse("admin:all-pages")),
        *_of_operators(cast),
        Shot(name="components", user=cast.ops, address="/operators/components"),
        Shot(name="dialog", user=cast.ops, address="/operators/components", first=_dialog),
    ]


def _code(page: Page) -> None:
    page.locator("[name=message]").fill("What is a penstock, and why is it called that?")
    page.get_by_role("button", name="Code").click()
    page.locator("#play-code[open]").wait_for()


def _of_operators(cast: Cast) -> list[Shot]:
    """Show the lists and forms that operators use most."""
    lists = {
        "tenants": "tenants_tenant",
        "keys": "tenants_apikey",
        "quotas": "tenants_quota",
        "tiers": "tenants_tier",
        "people": "tenants_user",
        "models": "inference_servedmodel",
        "pools": "inference_pool",
        "workers": "inference_worker",
        "prices": "billing_price",
        "invoices": "billing_invoice",
        "usage": "inference_usagerecord",
        "audit": "tenants_auditevent",
    }
    forms = {
        "tenant": reverse("admin:tenants_tenant_change", args=[cast.acme.id]),
        "tenant-new": reverse("admin:tenants_tenant_add"),
        "key": reverse("admin:tenants_apikey_change", args=[cast.key.id]),
        "price-new": reverse("admin:billing_price_add"),
        "quota-new": reverse("admin:tenants_quota_add"),
    }
    addresses = {name: reverse(f"admin:{model}_changelist") for name, model in lists.items()}
    return [
        Shot(name=f"admin-{name}", user=cast.support, address=address)
        for name, address in (addresses | forms).items()
    ]


def _switcher(page: Page) -> None:
    page.locator("[popovertarget=organisations]").click()
    page.locator("#organisations li").first.wait_for()


def _account(page: Page) -> None:
    page.locator("[popovertarget=account-menu]").click()


def _sign_in(page: Page) -> None:
    page.locator("[name=login]").fill("nobody@acme.example")
    page.locator("[name=password]").fill("not the password")
    page.locator("main [type=submit]").first.click()
    page.wait_for_load_state()


def _wrong(page: Page) -> None:
    page.locator("[name=name]").fill("web")
    page.locator("[value=smaller_model]").check()
    page.locator("[type=submit]").last.click()
    page.locator(".field-error").first.wait_for()


def _no_secret(page: Page) -> None:
    page.locator("[name=issuer]").fill("https://93.184.216.35")
    page.locator("form.form [type=submit]").first.click()
    page.locator(".field-error").first.wait_for()


def _sign_on(page: Page) -> None:
    page.locator("main [type=submit]").click()
    page.get_by_text("Not signed in").first.wait_for()


def _create(page: Page) -> None:
    width = page.viewport_size or {"width": 0}
    page.locator("[name=name]").fill(f"playground-{width['width']}-{_scheme(page)}")
    page.locator("form.form [type=submit]").click()
    page.wait_for_url("**/projects")


def _wrong_key(page: Page) -> None:
    page.locator("[name=project]").select_option(index=1)
    page.locator("[name=expires]").select_option("date")
    page.locator("[value=these]").check()
    page.locator("[name=allowed_networks]").fill("192.0.2.0/24\nthe office")
    page.locator("form.form [type=submit]").click()
    page.locator(".field-error").first.wait_for()


def _issue_key(page: Page) -> None:
    page.locator("[name=name]").fill("web backend")
    page.locator("form.form [type=submit]").click()
    page.locator(".secret-value").wait_for()


def _views(page: Page) -> None:
    page.locator(".saved-views > summary").click()


def _dialog_of_key(page: Page) -> None:
    page.locator("a[data-opens=revoke]").click()
    page.locator("dialog[open] input[name=confirm_name]").fill("web")


def _wrong_limit(page: Page) -> None:
    page.locator("[name=place]").select_option(index=1)
    page.locator("[name=value]").fill("lots")
    page.locator("[name=alert_percents]").fill("50 80 0")
    page.locator("form.form [type=submit]").click()
    page.locator(".field-error").first.wait_for()


def _wrong_hook(page: Page) -> None:
    page.locator("[name=url]").fill("http://10.0.0.7/hook")
    page.locator("[value=some]").check()
    page.locator("form.form [type=submit]").click()
    page.locator(".field-error").first.wait_for()
    page.evaluate("scrollTo(0, 0)")


def _no_file(page: Page) -> None:
    page.locator("[name=slug]").fill("Support Team")
    page.locator("form.form [type=submit]").click()
    page.locator(".field-error").first.wait_for()


def _rotate(page: Page) -> None:
    page.locator("form.form [type=submit]").click()
    page.locator(".secret-value").wait_for()


def _act(page: Page, goal: str) -> None:
    """Where the session acts already it goes on."""
    page.locator("[name=reason]").fill("Ticket 4711: projects are not listed")
    page.get_by_role("button", name="Act as a member").click()
    page.wait_for_load_state()
    page.goto(urljoin(page.url, goal))


def _scheme(page: Page) -> str:
    is_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    return "dark" if is_dark else "light"


def _dialog(page: Page) -> None:
    page.locator("a.button[data-opens]").click()
    page.locator("dialog input").fill("ci-")
