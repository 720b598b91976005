"""The form of the operators' sign-in: password and, for who has one, a second factor."""

from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib.admin.forms import AdminAuthenticationForm
from django.http import HttpRequest

from tenants.access.second_factor import has_second_factor, use_code
from tenants.access.sign_in import is_guessing_codes
from tenants.models import User


class OperatorSignInForm(AdminAuthenticationForm):
    code = forms.CharField(
        required=False,
        max_length=40,
        # It stands below the form of the template.
        widget=forms.TextInput(attrs={"autocomplete": "one-time-code", "form": "login-form"}),
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        user = self.get_user()
        if isinstance(user, User):
            self._check_second_factor(user, cleaned.get("code", ""))
        return cleaned

    def _check_second_factor(self, user: User, code: str) -> None:
        if not has_second_factor(user):
            if settings.PENSTOCK_OPERATORS_NEED_SECOND_FACTOR:
                raise forms.ValidationError(
                    "Operators need two-step sign-in here. Sign in at /account/login/ and set it "
                    "up at /account/2fa/ first.",
                    code="second_factor_missing",
                )
            return
        if not code:
            raise forms.ValidationError(
                "Enter a code of your authenticator app too.", code="second_factor_required"
            )
        request = cast(HttpRequest, self.request)
        if is_guessing_codes(request, str(user.pk)) or not use_code(request, user, code):
            raise forms.ValidationError(
                "The code is wrong or was used before.", code="wrong_second_factor"
            )
