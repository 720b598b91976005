"""Somebody's way to a provider and back."""

import html
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.utils import timezone

from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import (
    AuditEvent,
    MailDomain,
    ProofOfDomain,
    SignOnConfiguration,
    Tenant,
)
from tests.support.accounts.browser import Browser
from tests.support.sign_on.lying_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    LyingProvider,
    a_lying_provider,
)


def set_up(tenant: Tenant, provider: LyingProvider, *, domain: str = "", **fields: Any) -> None:
    """Give the tenant the provider, a proven domain, and `viewer` for everybody."""
    with operator_scope("test"):
        configuration = SignOnConfiguration(
            tenant=tenant,
            issuer=provider.issuer,
            client_id=CLIENT_ID,
            **{"default_role": "viewer"} | fields,
        )
        configuration.client_secret = CLIENT_SECRET
        configuration.save()
        if domain:
            MailDomain.objects.create(
                tenant=tenant,
                domain=domain,
                proven_at=timezone.now(),
                proven_by=ProofOfDomain.OPERATOR,
            )


@contextmanager
def a_provider_of(tenant: Tenant, *, domain: str, **fields: Any) -> Iterator[LyingProvider]:
    with a_lying_provider() as provider:
        set_up(tenant, provider, domain=domain, **fields)
        yield provider


def address_at_provider(browser: Browser, tenant: Tenant, **fields: str) -> str:
    """Where the browser is led to."""
    page = browser.submit(f"/sso/{tenant.pk}/", **fields)
    assert page.status_code == 200, page.content.decode()
    found = re.search(r'http-equiv="refresh" content="0; url=([^"]+)"', page.content.decode())
    assert found is not None, page.content.decode()
    return html.unescape(found[1])


def answer_of(browser: Browser, tenant: Tenant, provider: LyingProvider, **fields: str) -> Any:
    """What the browser gets once the provider has answered."""
    query = provider.approve(address_at_provider(browser, tenant, **fields))
    return browser.get(f"/sso/{tenant.pk}/callback?{query}")


def refusals(tenant_id: uuid.UUID) -> list[str]:
    """The reasons in the tenant's audit log, in order."""
    with operator_scope("test"):
        seal_now()
        events = AuditEvent.objects.filter(tenant_id=tenant_id, verb="sign_on_refused")
        return [event.changed_fields["reason"] for event in events.order_by("sequence")]
