"""The form of the operators' sign-in: password and, for who has one, a second factor."""

from typing import Any, Final, cast

from django import forms
from django.conf import settings
from django.http import HttpRequest
from unfold.forms import AuthenticationForm
from unfold.widgets import UnfoldAdminTextInputWidget

from control_plane.accounts import passkeys
from tenants.access.second_factor import CodeProblem, code_problem, has_second_factor
from tenants.models import User

_SENTENCES: Final = {
    CodeProblem.MISSING: "Enter a code of your authenticator app too.",
    CodeProblem.PASSKEY: (
        "Your account has a passkey: sign in with it by the link below, or enter a recovery code "
        "too."
    ),
    CodeProblem.TOO_MANY: "Too many codes for this account; try again in an hour.",
    CodeProblem.WRONG: "The code is wrong or was used before.",
}


class OperatorSignInForm(AuthenticationForm):  # type: ignore[misc]  # Unfold has no types
    code = forms.CharField(
        label="Code",
        help_text="With two-step sign-in: of your authenticator app, or a recovery code.",
        required=False,
        max_length=40,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "one-time-code"}),
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean()
        user = self.get_user()
        if isinstance(user, User):
            self._check_second_factor(user, cleaned.get("code", ""))
        return cleaned

    @property
    def are_passkeys_possible(self) -> bool:
        return passkeys.are_possible()

    def _check_second_factor(self, user: User, code: str) -> None:
        if settings.PENSTOCK_OPERATORS_NEED_SECOND_FACTOR and not has_second_factor(user):
            raise forms.ValidationError(
                "Operators need two-step sign-in here. Sign in at /account/login/ and set it "
                "up at /account/2fa/ first.",
                code="second_factor_missing",
            )
        problem = code_problem(cast(HttpRequest, self.request), user, code)
        if problem is not None:
            raise forms.ValidationError(_SENTENCES[problem], code=problem)
