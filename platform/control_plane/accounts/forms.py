"""The forms of allauth that we change."""

from typing import Any

from allauth.account.forms import ResetPasswordForm
from django.http import HttpRequest

from tenants.access.account_changes import note_reset_request
from tenants.isolation.audit_actor import address_of
from tenants.models import User


class AskForResetForm(ResetPasswordForm):  # type: ignore[misc]
    """Finds the account by the address that it signs in with. Who has none gets an e-mail too,
    which says so: the form cannot tell whether there is one."""

    def clean_email(self) -> str:
        email: str = self.cleaned_data["email"].strip().lower()
        self.users = list(User.objects.filter(email=email, is_active=True))
        return email

    def save(self, request: HttpRequest, **kwargs: Any) -> str:
        note_reset_request(next(iter(self.users), None), address_of(request))
        email: str = super().save(request, **kwargs)
        return email
