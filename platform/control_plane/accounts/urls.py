"""The addresses of accounts, below /account/: each page of allauth that we have, named one by one,
with the limits of its form."""

from typing import cast

from allauth.account import views
from allauth.mfa.base import views as mfa
from allauth.mfa.recovery_codes.views import generate_recovery_codes, view_recovery_codes
from allauth.mfa.totp.views import activate_totp, deactivate_totp
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path, register_converter
from django.urls.converters import StringConverter

from control_plane.accounts import email_change, invitation, passkeys, sign_on, sign_up
from control_plane.accounts.limits import (
    against_floods,
    against_guessing,
    against_guessing_codes,
    against_guessing_links,
    against_guessing_passkeys,
)
from control_plane.accounts.own_proof import after_own_sign_in
from control_plane.accounts.sessions import SessionList
from tenants.access.second_factor import has_second_factor
from tenants.models import User


class UserIdConverter(StringConverter):
    regex = "[0-9A-Za-z]+"


register_converter(UserIdConverter, "user_id")


@login_required
def overview(request: HttpRequest) -> HttpResponse:
    context = {"has_second_factor": has_second_factor(cast(User, request.user))}
    return render(request, "account/overview.html", context)


_login = views.LoginView.as_view(
    extra_context={
        "is_sign_up_open": settings.PENSTOCK_SIGN_UP == "open",
        "are_passkeys_possible": passkeys.are_possible,
    }
)
_second_factor = mfa.IndexView.as_view(
    extra_context={"are_passkeys_possible": passkeys.are_possible}
)
_FROM_KEY = "password/reset/key/<user_id:uidb36>-<str:key>/"

urlpatterns = [
    path("", overview, name="account"),
    path("login/", against_guessing(_login, field="login"), name="account_login"),
    path(
        "login/passkey/",
        against_guessing_passkeys(passkeys.sign_in_with_passkey),
        name="mfa_login_webauthn",
    ),
    path("logout/", views.logout, name="account_logout"),
    path("2fa/", _second_factor, name="mfa_index"),
    path("2fa/authenticate/", against_guessing_codes(mfa.authenticate), name="mfa_authenticate"),
    path(
        "2fa/reauthenticate/", against_guessing_codes(mfa.reauthenticate), name="mfa_reauthenticate"
    ),
    path(
        "2fa/reauthenticate/passkey/",
        against_guessing_codes(passkeys.confirm_with_passkey),
        name="mfa_reauthenticate_webauthn",
    ),
    path("2fa/passkeys/add/", passkeys.add_passkey, name="mfa_add_webauthn"),
    path("2fa/passkeys/<int:pk>/remove/", passkeys.remove_passkey, name="mfa_remove_webauthn"),
    path("2fa/totp/activate/", activate_totp, name="mfa_activate_totp"),
    path("2fa/totp/deactivate/", deactivate_totp, name="mfa_deactivate_totp"),
    path("2fa/recovery-codes/", view_recovery_codes, name="mfa_view_recovery_codes"),
    path(
        "2fa/recovery-codes/generate/",
        generate_recovery_codes,
        name="mfa_generate_recovery_codes",
    ),
    path("sso/", against_guessing_links(sign_on.ask), name="account_sign_on"),
    path("sessions/", SessionList.as_view(), name="usersessions_list"),
    path("signup/", against_floods(sign_up.ask), name="account_signup"),
    path("signup/sent/", sign_up.sent, name="account_signup_sent"),
    path("signup/<str:key>/", against_guessing_links(sign_up.finish), name="account_finish_signup"),
    path(
        "invitation/<str:key>/",
        against_guessing_links(invitation.answer),
        name="account_invitation",
    ),
    path("reauthenticate/", against_guessing(views.reauthenticate), name="account_reauthenticate"),
    path(
        "password/change/", against_guessing(views.password_change), name="account_change_password"
    ),
    path("password/set/", views.password_set, name="account_set_password"),
    path("password/reset/", against_floods(views.password_reset), name="account_reset_password"),
    path("password/reset/done/", views.password_reset_done, name="account_reset_password_done"),
    path(
        "password/reset/key/done/",
        views.password_reset_from_key_done,
        name="account_reset_password_from_key_done",
    ),
    path(
        _FROM_KEY,
        against_guessing_links(views.password_reset_from_key),
        name="account_reset_password_from_key",
    ),
    path("email/", against_floods(email_change.ask), name="account_email"),
    path("email/sent/", email_change.sent, name="account_email_verification_sent"),
    path(
        "email/confirm/<str:key>/",
        against_guessing_links(email_change.confirm),
        name="account_confirm_email",
    ),
]

# All others change the account, which a provider of one organisation has no say in.
_OPEN_TO_SIGN_ON = {
    "account",
    "account_login",
    "account_logout",
    "account_sign_on",
    "account_signup",
    "account_signup_sent",
    "account_finish_signup",
    "account_reset_password",
    "account_reset_password_done",
    "account_reset_password_from_key",
    "account_reset_password_from_key_done",
    "mfa_authenticate",
    "mfa_login_webauthn",
    "usersessions_list",
}
for _pattern in urlpatterns:
    if _pattern.name not in _OPEN_TO_SIGN_ON:
        _pattern.callback = after_own_sign_in(_pattern.callback)
