"""What allauth asks us about second factors: their secrets are encrypted, each code works once,
passkeys are for the public address, and the limits are ours."""

from urllib.parse import urlsplit

from allauth.account.internal.stagekit import get_pending_stage
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.forms import ActivateTOTPForm
from django.conf import settings
from django.http import HttpRequest

from tenants import encryption
from tenants.access.break_glass import is_only_way_in
from tenants.models import User


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    error_messages = DefaultMFAAdapter.error_messages | {
        "cannot_delete_authenticator": (
            "An organisation of yours asks for single sign-on, and only you get in while its "
            "provider is down: set up two-step sign-in for another of its owners first."
        )
    }

    def encrypt(self, text: str) -> str:
        return encryption.encrypt(text, encryption.SECOND_FACTOR).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return encryption.decrypt(encrypted_text.encode(), encryption.SECOND_FACTOR)

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        """Return for whom passkeys are: the public address, whatever host the request named."""
        host = urlsplit(settings.PENSTOCK_PUBLIC_URL).hostname or ""
        return {"id": host, "name": settings.MFA_TOTP_ISSUER}

    def can_delete_authenticator(self, authenticator: Authenticator) -> bool:
        kinds = [Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN]
        others = Authenticator.objects.filter(user=authenticator.user, type__in=kinds)
        return others.exclude(pk=authenticator.pk).exists() or not is_only_way_in(
            authenticator.user
        )

    def generate_authenticator_name(self, user: User, type: str) -> str:  # noqa: A002
        """Return the name of a passkey that was given none."""
        number = Authenticator.objects.filter(user=user, type=type).count() + 1
        return "Passkey" if number == 1 else f"Passkey {number}"


class ActivateForm(ActivateTOTPForm):  # type: ignore[misc]
    """Uses the code up that proves a new authenticator app, so that nobody signs in with it."""

    def clean_code(self) -> str:
        code: str = super().clean_code()
        secret = SecondFactorAdapter().encrypt(self.secret)
        proven = Authenticator(
            user=self.user, type=Authenticator.Type.TOTP, data={"secret": secret}
        )
        proven.wrap().validate_code(code)
        return code


def account_in_question(request: HttpRequest) -> str:
    """Return the id of who is signing in or has done so, empty for a stranger."""
    if request.user.is_authenticated:
        return str(request.user.pk)
    stage = get_pending_stage(request)
    return "" if stage is None or stage.login.user is None else str(stage.login.user.pk)
