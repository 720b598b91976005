"""Passkeys: added, removed, and used to sign in, as a second factor or as both factors at once.

allauth keeps them and runs the ceremonies. Ours narrow them to what a passkey is: kept on a device
that verifies its owner each time, used at the public address alone. Of what a browser sends only
what was checked is looked at or stored.
"""

import ipaddress
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import structlog
from allauth.account.utils import passthrough_next_redirect_url
from allauth.core import context
from allauth.mfa.totp.forms import DeactivateTOTPForm
from allauth.mfa.webauthn import forms as base
from allauth.mfa.webauthn import views
from allauth.mfa.webauthn.internal import auth
from cryptography.exceptions import InvalidSignature
from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import reverse, reverse_lazy
from fido2.cose import CoseKey
from fido2.webauthn import AuthenticationResponse, CollectedClientData, RegistrationResponse

from tenants.access.second_factor import note_failed_passkey, note_failure

log = structlog.get_logger(__name__)

MOST_PASSKEYS: Final = 20
# A passkey's own is a few kilobytes.
_LONGEST_ANSWER: Final = 32 * 1024
# https://www.w3.org/TR/webauthn-3/#credential-id
_ID_BYTES: Final = range(16, 1024)
_TO_ADD: Final = ("clientDataJSON", "attestationObject")
_TO_USE: Final = ("clientDataJSON", "authenticatorData", "signature", "userHandle")


def are_possible() -> bool:
    """Return whether browsers let the public address have passkeys: https under a name, or
    localhost."""
    url = urlsplit(settings.PENSTOCK_PUBLIC_URL)
    host = url.hostname or ""
    is_local = host == "localhost" or host.endswith(".localhost")
    return is_local or (url.scheme == "https" and not _is_ip_address(host))


class AnswerField(forms.JSONField):
    """What the browser answers to a ceremony."""

    widget = forms.HiddenInput
    default_error_messages = {
        "required": "No passkey was used. This needs JavaScript, and a browser with passkeys."
    }

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) > _LONGEST_ANSWER:
            raise _not_accepted()
        try:
            return super().to_python(value)
        except RecursionError:
            raise _not_accepted() from None

    def bound_data(self, _data: Any, _initial: Any) -> None:
        """Show no answer again: it was for a challenge that is gone."""


# Adding and removing ------------------------------------------------------------------------------


class AddPasskeyForm(base.AddWebAuthnForm):  # type: ignore[misc]
    # allauth asks for each key whether it is a passkey; here each is.
    passwordless = None
    name = forms.CharField(
        max_length=60,
        required=False,
        help_text="Where it is kept, for example laptop or phone.",
    )
    credential = AnswerField()

    def clean_credential(self) -> dict[str, Any]:
        if len(auth.get_credentials(self.user)) >= MOST_PASSKEYS:
            raise ValidationError(
                f"An account has at most {MOST_PASSKEYS} passkeys; remove one first.",
                code="too_many_passkeys",
            )
        answer = _plain(self.cleaned_data["credential"], _TO_ADD)
        parsed = _parsed(RegistrationResponse, answer)
        _check_origin(parsed.response.client_data)
        kept = parsed.response.attestation_object.auth_data.credential_data
        if (
            kept is None
            or kept.credential_id != parsed.raw_id
            or len(parsed.raw_id) not in _ID_BYTES
            or not _can_verify(kept.public_key)
        ):
            raise _not_accepted()
        if auth.get_authenticator_by_credential_id(self.user, kept.credential_id):
            raise ValidationError("This passkey is in your list already.", code="known_passkey")
        return answer

    def clean(self) -> dict[str, Any]:
        try:
            cleaned: dict[str, Any] = super().clean()
        except ValidationError:
            raise _not_accepted() from None
        return cleaned


class AddPasskeyView(views.AddWebAuthnView):  # type: ignore[misc]
    form_class = AddPasskeyForm

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        # Not allauth's own, which validates the form again, for the challenge that it makes here.
        shown: dict[str, Any] = super(views.AddWebAuthnView, self).get_context_data(**kwargs)
        options = auth.begin_registration(self.request.user, passwordless=True)
        return shown | {"options": options, "are_passkeys_possible": are_possible()}


class RemovePasskeyView(views.RemoveWebAuthnView):  # type: ignore[misc]
    form_class = DeactivateTOTPForm  # asks whether any authenticator may go, not an app alone
    success_url = reverse_lazy("mfa_index")

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "authenticator": self.object}


add_passkey = AddPasskeyView.as_view()
remove_passkey = RemovePasskeyView.as_view()


# Using --------------------------------------------------------------------------------------------


class _UsesPasskey(forms.Form):
    credential = AnswerField()

    def clean_credential(self) -> Any:
        """Return the authenticator that was used; the failure is recorded."""
        answer = None
        try:
            answer = _plain(self.cleaned_data["credential"], _TO_USE)
            _check_origin(_parsed(AuthenticationResponse, answer).response.client_data)
            self.cleaned_data["credential"] = answer
            return super().clean_credential()  # type: ignore[misc]
        except ValidationError:
            self.note_failure(answer)
            raise _not_accepted() from None

    def note_failure(self, _answer: dict[str, Any] | None) -> None:
        note_failure(context.request, self.user)  # type: ignore[attr-defined]


class SecondFactorForm(_UsesPasskey, base.AuthenticateWebAuthnForm):  # type: ignore[misc]
    """After the password."""


class ConfirmForm(_UsesPasskey, base.ReauthenticateWebAuthnForm):  # type: ignore[misc]
    """Before what changes how somebody signs in."""


class SignInForm(_UsesPasskey, base.LoginWebAuthnForm):  # type: ignore[misc]
    """Instead of the password, and of the second factor: the device has asked for one itself."""

    def note_failure(self, answer: dict[str, Any] | None) -> None:
        if answer is None:
            return
        try:
            claimed = auth.extract_user_from_response(answer)
        except ValidationError:
            return  # nobody's
        note_failed_passkey(context.request, claimed)


class SignInView(views.LoginWebAuthnView):  # type: ignore[misc]
    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Answer a script with a challenge, and anybody else with the page that has the script."""
        if request.headers.get("Accept") == "application/json":
            return JsonResponse(auth.begin_authentication(user=None))
        return HttpResponseRedirect(reverse("account_login"))

    def form_invalid(self, form: forms.Form) -> HttpResponse:
        return _back(self.request, form, reverse("account_login"))


class ConfirmView(views.ReauthenticateWebAuthnView):  # type: ignore[misc]
    def form_invalid(self, form: forms.Form) -> HttpResponse:
        return _back(self.request, form, self.request.path)


sign_in_with_passkey = SignInView.as_view()
confirm_with_passkey = ConfirmView.as_view()


def _back(request: HttpRequest, form: forms.Form, address: str) -> HttpResponse:
    for error in form.errors.get("credential", []):
        messages.error(request, str(error))
    return HttpResponseRedirect(passthrough_next_redirect_url(request, address, "next"))


# What strangers send ------------------------------------------------------------------------------


def _plain(answer: Any, parts: Sequence[str]) -> dict[str, Any]:
    """Return what is read of an answer, all of it text: of a number the library would make as many
    bytes. Raises `ValidationError`."""
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict):
        raise _not_accepted()
    told = {part: response[part] for part in parts if response.get(part) is not None}
    raw_id = answer.get("rawId")
    if not all(isinstance(each, str) for each in (raw_id, *told.values())):
        raise _not_accepted()
    return {"id": raw_id, "rawId": raw_id, "type": "public-key", "response": told}


def _parsed(kind: Any, answer: dict[str, Any]) -> Any:
    try:
        return kind.from_dict(answer)
    except Exception as error:  # noqa: BLE001 - the library raises whatever its parsing meets
        log.info("passkey_not_readable", problem=type(error).__name__)
        raise _not_accepted() from None


def _check_origin(told: CollectedClientData) -> None:
    """Refuse an answer that was given to another page: the library takes those of hosts below ours
    too, and frames in foreign pages."""
    url = urlsplit(settings.PENSTOCK_PUBLIC_URL.lower())
    port = None if url.port == {"http": 80, "https": 443}.get(url.scheme) else url.port
    ours = f"{url.scheme}://{url.hostname}" + (f":{port}" if port else "")
    if told.origin != ours or told.cross_origin:
        raise _not_accepted()


def _can_verify(key: CoseKey) -> bool:
    """Return whether signatures of this key can be checked, so that it does not fail at sign-in."""
    try:
        key.verify(b"", b"")
    except InvalidSignature:
        return True
    except Exception as error:  # noqa: BLE001 - the same
        log.info("passkey_not_usable", problem=type(error).__name__)
    return False


def _not_accepted() -> ValidationError:
    return ValidationError(
        "This passkey was not accepted. Try again, or choose another way.", code="wrong_passkey"
    )


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
