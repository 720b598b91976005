"""What allauth asks us about second factors: their secrets are encrypted, each code works once, and
its limits are ours."""

import base64
import hashlib

from allauth.account.internal.stagekit import get_pending_stage
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.forms import ActivateTOTPForm
from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from django.http import HttpRequest


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    def encrypt(self, text: str) -> str:
        """Encrypt under the secret key; what its predecessors encrypted can be read while they are
        in PENSTOCK_PREVIOUS_SECRET_KEYS."""
        return _cipher().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return _cipher().decrypt(encrypted_text.encode()).decode()


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


def _cipher() -> MultiFernet:
    secrets = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    keys = [hashlib.sha256(b"penstock.second-factor" + each.encode()).digest() for each in secrets]
    return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in keys])
