"""What django-allauth asks us about OpenID Connect. State, PKCE and the exchange of the code are
allauth's; which provider there is says the tenant's configuration, and who has arrived says
`tenants.access.sign_on`: allauth's own tables of apps and accounts stay empty."""

import secrets
import uuid
from typing import Any, Final, cast

import requests
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialLogin, SocialToken
from allauth.socialaccount.providers.base.constants import AuthError
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from control_plane.accounts.sign_on_completion import finish_sign_on, refuse_sign_on
from tenants.access.sign_on.configuration import provider_of
from tenants.access.sign_on.id_token import Claims, check_nonce, verified_claims
from tenants.access.sign_on.provider_http import ProviderUnreachable, provider_session
from tenants.access.sign_on.refusals import Reason, SignOnRefused
from tenants.encryption import SecretLost
from tenants.models import SignOnConfiguration
from tenants.webhooks.addresses import UrlRefused, parse_url

_ENDPOINTS: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_AUTH_METHODS: Final = "token_endpoint_auth_methods_supported"
_NAME_CHARACTERS: Final = 40


class SignOnAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """`provider` is a tenant's id as text, everywhere."""

    def list_apps(self, *_: Any, **__: Any) -> list[SocialApp]:
        return []

    def get_app(self, request: HttpRequest, provider: str, client_id: str | None = None) -> Any:
        """Make the app of a tenant's configuration; it is never stored. Raises
        `SocialApp.DoesNotExist`, and `SignOnRefused` where its secret cannot be read."""
        configuration = provider_of(uuid.UUID(provider))
        if configuration is None:
            raise SocialApp.DoesNotExist
        return _app(configuration)

    def get_provider(
        self, request: HttpRequest, provider: str, client_id: str | None = None
    ) -> "SignOnProvider":
        return SignOnProvider(request, app=self.get_app(request, provider))

    def get_requests_session(self) -> requests.Session:
        return provider_session()

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """End allauth's way here: who it is was checked, and is signed in by us."""
        claims = cast(Claims, sociallogin.claims)
        check_nonce(claims, str(sociallogin.state.get("nonce", "")))
        tenant_id = uuid.UUID(sociallogin.account.provider)
        raise ImmediateHttpResponse(
            finish_sign_on(request, tenant_id, claims, back=sociallogin.state.get("next"))
        )

    def on_authentication_error(
        self,
        request: HttpRequest,
        provider: Any,
        error: Any = None,
        exception: Exception | None = None,
        extra_context: Any = None,
    ) -> None:
        tenant_id = uuid.UUID(provider.app.provider_id)
        reason = _reason(error, exception, extra_context or {})
        raise ImmediateHttpResponse(refuse_sign_on(request, tenant_id, reason))


class SignOnOAuth2Adapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]
    """Checks what the provider sends, and takes the id token alone."""

    @property
    def openid_config(self) -> dict[str, Any]:
        """Return the discovery document. Raises `SignOnRefused`, also where it is another issuer's
        or names an address that is none for us."""
        if not hasattr(self, "_openid_config"):
            issuer = self.get_provider().app.settings["issuer"]
            found = _fetched(self.get_provider().server_url)
            if found.get("issuer") != issuer:
                raise SignOnRefused(Reason.WRONG_ISSUER)
            for name in _ENDPOINTS:
                _check_address(found.get(name))
            if not isinstance(found.get(_AUTH_METHODS, []), list):
                raise SignOnRefused(Reason.BAD_ANSWER)
            self._openid_config = found
        config: dict[str, Any] = self._openid_config
        return config

    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        return callback_url(uuid.UUID(app.provider_id))

    def get_access_token_data(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            answer = super().get_access_token_data(*args, **kwargs)
        except TypeError:
            # A number, which allauth looks for an access token in.
            answer = None
        if not isinstance(answer, dict):
            raise SignOnRefused(Reason.BAD_ANSWER)
        return answer

    def parse_token(self, data: dict[str, Any]) -> SocialToken:
        """Keep no token: nothing is asked of the provider in somebody's name."""
        return SocialToken()

    def complete_login(
        self, request: HttpRequest, app: SocialApp, token: SocialToken, **kwargs: Any
    ) -> SocialLogin:
        id_token = kwargs["response"].get("id_token")
        if not isinstance(id_token, str):
            raise SignOnRefused(Reason.BAD_TOKEN)
        claims = verified_claims(
            id_token,
            keys=_fetched(self.openid_config["jwks_uri"]),
            issuer=app.settings["issuer"],
            client_id=app.client_id,
        )
        account = SocialAccount(provider=app.provider_id, uid=claims.subject)
        login = SocialLogin(account=account, provider=self.get_provider())
        login.claims = claims
        return login


class SignOnProvider(OpenIDConnectProvider):  # type: ignore[misc]
    oauth2_adapter_class = SignOnOAuth2Adapter

    def begin(self, request: HttpRequest, *, back: str | None) -> str:
        """Return the address at the provider that somebody goes to, with a state and a nonce that
        are this browser's. Raises `SignOnRefused`."""
        nonce = secrets.token_urlsafe(24)
        answer: HttpResponse = self.redirect(
            request, process="login", next_url=back, auth_params={"nonce": nonce}, nonce=nonce
        )
        return str(answer["Location"])


def callback_url(tenant_id: uuid.UUID) -> str:
    """Return what is registered at the provider, under the public address."""
    return f"{settings.PENSTOCK_PUBLIC_URL}{reverse('sign-on-callback', args=[tenant_id])}"


def _app(configuration: SignOnConfiguration) -> SocialApp:
    try:
        secret = configuration.client_secret
    except SecretLost:
        raise SignOnRefused(Reason.SECRET_LOST) from None
    return SocialApp(
        provider=OpenIDConnectProvider.id,
        provider_id=str(configuration.pk),
        name=configuration.tenant.name[:_NAME_CHARACTERS],
        client_id=configuration.client_id,
        secret=secret,
        settings={
            "issuer": configuration.issuer,
            "server_url": configuration.issuer.rstrip("/"),
            "oauth_pkce_enabled": True,
        },
    )


def _fetched(address: str) -> dict[str, Any]:
    """Return a document of the provider. Raises `SignOnRefused`."""
    try:
        with provider_session() as session:
            answer = session.get(address)
            answer.raise_for_status()
            found = answer.json()
    except requests.RequestException as error:
        raise SignOnRefused(_reason(None, error, {})) from None
    if not isinstance(found, dict):
        raise SignOnRefused(Reason.BAD_ANSWER)
    return found


def _check_address(address: object) -> None:
    try:
        parse_url(address if isinstance(address, str) else "")
    except UrlRefused:
        raise SignOnRefused(Reason.ADDRESS_REFUSED) from None


def _reason(error: Any, exception: Exception | None, context: dict[str, Any]) -> Reason:
    if error == AuthError.CANCELLED:
        return Reason.CANCELLED
    if isinstance(exception, ProviderUnreachable):
        is_refused = exception.code == "address_refused"
        return Reason.ADDRESS_REFUSED if is_refused else Reason.UNREACHABLE
    if exception is not None:
        return Reason.BAD_ANSWER
    # Only an unknown state has an id and no state.
    return Reason.UNKNOWN_STATE if "state_id" in context else Reason.PROVIDER_ERROR
