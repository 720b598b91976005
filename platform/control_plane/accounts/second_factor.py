"""What allauth asks us about second factors: their secrets are encrypted, each code works once, and
its limits are ours."""

from allauth.account.internal.stagekit import get_pending_stage
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.forms import ActivateTOTPForm
from django.http import HttpRequest

from tenants import encryption


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    def encrypt(self, text: str) -> str:
        return encryption.encrypt(text, encryption.SECOND_FACTOR).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return encryption.decrypt(encrypted_text.encode(), encryption.SECOND_FACTOR)


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
