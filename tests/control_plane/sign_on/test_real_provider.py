"""The whole way with a provider that nobody here has written: allauth's own, in its own process."""

from pathlib import Path

import pytest

from tenants.isolation.scoping import operator_scope
from tenants.models import SignOnConfiguration
from tests.support.accounts.browser import Browser
from tests.support.sign_on import real_provider
from tests.support.sign_on.arriving import address_at_provider
from tests.support.sign_on.lying_provider import LyingProvider
from tests.support.sign_on.real_provider import a_real_provider
from tests.support.two_tenants import House

pytestmark = pytest.mark.django_db


def test_carol_signs_on(
    browser: Browser, acme: House, provider: LyingProvider, tmp_path: Path
) -> None:
    back = f"http://testserver/sso/{acme.tenant.pk}/callback"
    with a_real_provider(tmp_path, redirect_address=back) as real:
        with operator_scope("test"):
            stored = SignOnConfiguration.objects.get(tenant=acme.tenant)
            stored.issuer, stored.client_id = real.issuer, real_provider.CLIENT_ID
            stored.client_secret = real_provider.CLIENT_SECRET
            stored.save()
        for _ in range(2):
            query = real.approve(address_at_provider(browser, acme.tenant), redirect_address=back)
            answer = browser.get(f"/sso/{acme.tenant.pk}/callback?{query}")
            assert answer["Location"] == f"/t/{acme.tenant.pk}/", answer.content
            assert browser.get(answer["Location"]).status_code == 200
            assert browser.email == real_provider.EMAIL
            browser = Browser()
    assert provider.paths == []
