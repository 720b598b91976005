"""The one table: every address x method x credential -> status, where Acme is asked about.

A row is an address, a method and one status for each column; `every` stands for the same in all.
What a row's address takes no row for is 405 for everybody. Addresses are those that Django's
resolver and the gateway's routes have: one without a row fails the suite, a row without one too.
"""

from dataclasses import dataclass
from typing import Final

COLUMNS: Final = (
    "nobody",
    # people with a session
    "viewer",
    "admin",
    # keys of Acme
    "inference",
    "usage:read",
    "adapters:write",
    "keys:write",
    "admin key",
    "revoked",
    "expired",
    # an owner of Globex, and a key of it with the scopes inference and admin
    "Globex",
    "Globex key",
)

_T: Final = "/api/v1/tenants/<tenant_id>"
_W: Final = f"{_T}/webhooks"
_E: Final = f"{_W}/<endpoint_id>"
_D: Final = f"{_E}/deliveries/<delivery_id>"

_A: Final = f"{_T}/adapters/<adapter_id>"
_AV: Final = f"{_A}/versions/<version_id>"
_L: Final = f"{_T}/invoices/<invoice_id>/lines/<line_id>"

_P: Final = "/t/<tenant_id>/"
_PB: Final = f"{_P}billing"
_PW: Final = f"{_P}webhooks/<endpoint_id>"
_PA: Final = f"{_P}adapters/<adapter_id>"
_PV: Final = f"{_PA}/versions/<version_id>"
_PU: Final = f"{_P}adapters/uploads"
_PD: Final = f"{_PW}/deliveries/<delivery_id>"

_DJANGO: Final = f"""
/                                 GET    every 200
# Documentation for anybody.
/docs/api                         GET    every 200
/docs/websocket                   GET    every 200
# Pages for people: a session is a credential, a key is none. What a stranger is not shown leads to
# the sign-in; an empty form is shown again; a new email address is asked for after the password.
#                                        -    view admn  inf  use  adp  key  adm  rev  exp  glo  glk
/account/                         GET    302  200  200  302  302  302  302  302  302  302  200  302
/account/login/                   GET    200  302  302  200  200  200  200  200  200  200  302  200
/account/login/                   POST   200  302  302  200  200  200  200  200  200  200  302  200
/account/login/passkey/           GET    every 302
/account/login/passkey/           POST   every 302
/account/logout/                  GET    302  200  200  302  302  302  302  302  302  302  200  302
/account/logout/                  POST   every 302
/account/2fa/                     GET    302  200  200  302  302  302  302  302  302  302  200  302
/account/2fa/authenticate/        GET    every 302
/account/2fa/authenticate/        POST   every 302
/account/2fa/reauthenticate/      GET    every 302
/account/2fa/reauthenticate/      POST   every 302
/account/2fa/reauthenticate/passkey/ GET  every 302
/account/2fa/reauthenticate/passkey/ POST every 302
/account/2fa/passkeys/add/        GET    every 302
/account/2fa/passkeys/add/        POST   every 302
/account/2fa/passkeys/<pk>/remove/ GET   every 302
/account/2fa/passkeys/<pk>/remove/ POST  every 302
/account/2fa/totp/activate/       GET    every 302
/account/2fa/totp/activate/       POST   every 302
/account/2fa/totp/deactivate/     GET    302  404  404  302  302  302  302  302  302  302  404  302
/account/2fa/totp/deactivate/     POST   302  404  404  302  302  302  302  302  302  302  404  302
/account/2fa/recovery-codes/      GET    302  404  404  302  302  302  302  302  302  302  404  302
/account/2fa/recovery-codes/generate/ GET  every 302
/account/2fa/recovery-codes/generate/ POST every 302
/account/sessions/                GET    302  200  200  302  302  302  302  302  302  302  200  302
/account/sessions/                POST   every 302
/account/sso/                     GET    every 200
/account/sso/                     POST   every 200
# No provider: no page.
/sso/<tenant_id>/                 GET    every 404
/sso/<tenant_id>/                 POST   every 404
/sso/<tenant_id>/callback         GET    every 404
/account/signup/                  GET    every 403
/account/signup/                  POST   every 403
/account/signup/sent/             GET    every 403
/account/signup/<key>/            GET    every 403
/account/signup/<key>/            POST   every 403
/account/invitation/<key>/        GET    every 400
/account/invitation/<key>/        POST   every 400
/account/reauthenticate/          GET    302  200  200  302  302  302  302  302  302  302  200  302
/account/reauthenticate/          POST   302  200  200  302  302  302  302  302  302  302  200  302
/account/password/change/         GET    302  200  200  302  302  302  302  302  302  302  200  302
/account/password/change/         POST   302  200  200  302  302  302  302  302  302  302  200  302
/account/password/set/            GET    every 302
/account/password/set/            POST   every 302
/account/password/reset/          GET    every 200
/account/password/reset/          POST   every 200
/account/password/reset/done/     GET    every 200
/account/password/reset/key/done/ GET    every 200
/account/password/reset/key/<uidb36>-<key>/ GET  every 200
/account/password/reset/key/<uidb36>-<key>/ POST every 200
/account/email/                   GET    every 302
/account/email/                   POST   every 302
/account/email/sent/              GET    302  200  200  302  302  302  302  302  302  302  200  302
/account/email/confirm/<key>/     GET    302  400  400  302  302  302  302  302  302  302  400  302
/account/email/confirm/<key>/     POST   302  400  400  302  302  302  302  302  302  302  400  302
/admin/login/                     GET    every 200
/admin/login/                     POST   every 200
/admin/*                          ANY    every 302

# Pages take sessions alone: 302 is the way to sign in. 422 is an empty form that got past the gate.
#                                        -    view admn  inf  use  adp  key  adm  rev  exp  glo  glk
/t/                               GET    every 302
{_P}                              GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}projects                      GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}projects/new                  GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}projects/new                  POST   302  403  422  302  302  302  302  302  302  302  404  302
{_P}projects/<project_id>         GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}projects/<project_id>         POST   302  403  422  302  302  302  302  302  302  302  404  302
{_P}keys                          GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}keys/new                      GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}keys/new                      POST   302  403  422  302  302  302  302  302  302  302  404  302
{_P}keys/<key_id>                 GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}keys/<key_id>                 POST   302  403  422  302  302  302  302  302  302  302  404  302
{_P}keys/<key_id>/rotate          GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}keys/<key_id>/rotate          POST   302  403  422  302  302  302  302  302  302  302  404  302
{_P}keys/<key_id>/revoke          GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}keys/<key_id>/revoke          POST   302  403  422  302  302  302  302  302  302  302  404  302
{_P}limits                        GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}limits/new                    GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}limits/new                    POST   302  403  422  302  302  302  302  302  302  302  404  302
{_P}limits/new-budget             GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}limits/new-budget             POST   302  403  422  302  302  302  302  302  302  302  404  302
{_P}limits/balance-alert          GET    302  403  200  302  302  302  302  302  302  302  404  302
# Nothing is an answer there: no alert.
{_P}limits/balance-alert          POST   302  403  302  302  302  302  302  302  302  302  404  302
{_P}limits/<quota_id>             GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}limits/<quota_id>             POST   302  403  422  302  302  302  302  302  302  302  404  302
{_P}limits/<quota_id>/remove      GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}limits/<quota_id>/remove      POST   302  403  302  302  302  302  302  302  302  302  404  302
{_P}adapters                      GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}adapters/new                  GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}adapters/new                  POST   302  403  422  302  302  302  302  302  302  302  404  302
{_PU}                             POST   302  403  422  302  302  302  302  302  302  302  404  302
{_PU}/<pending_id>/parts          POST   302  403  411  302  302  302  302  302  302  302  404  302
{_PU}/<pending_id>/complete       POST   302  403  400  302  302  302  302  302  302  302  404  302
{_PA}                             GET    302  200  200  302  302  302  302  302  302  302  404  302
{_PA}/traffic                     GET    302  403  200  302  302  302  302  302  302  302  404  302
{_PA}/traffic                     POST   302  403  422  302  302  302  302  302  302  302  404  302
{_PA}/delete                      GET    302  403  200  302  302  302  302  302  302  302  404  302
{_PA}/delete                      POST   302  403  422  302  302  302  302  302  302  302  404  302
{_PA}/versions/new                GET    302  403  200  302  302  302  302  302  302  302  404  302
{_PA}/versions/new                POST   302  403  422  302  302  302  302  302  302  302  404  302
{_PV}                             GET    302  200  200  302  302  302  302  302  302  302  404  302
{_PV}/promote                     POST   302  403  302  302  302  302  302  302  302  302  404  302
{_PV}/archive                     GET    302  403  200  302  302  302  302  302  302  302  404  302
{_PV}/archive                     POST   302  403  422  302  302  302  302  302  302  302  404  302
{_PV}/delete                      GET    302  403  200  302  302  302  302  302  302  302  404  302
{_PV}/delete                      POST   302  403  422  302  302  302  302  302  302  302  404  302
{_P}members                       GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}billing                       GET    302  403  200  302  302  302  302  302  302  302  404  302
{_PB}/transactions                GET    302  403  200  302  302  302  302  302  302  302  404  302
{_PB}/transactions/<transaction_id> GET   302  403  200  302  302  302  302  302  302  302  404  302
{_PB}/invoices                    GET    302  403  200  302  302  302  302  302  302  302  404  302
{_PB}/invoices/<invoice_id>       GET    302  403  200  302  302  302  302  302  302  302  404  302
{_PB}/invoices/<invoice_id>.pdf   GET    302  403  200  302  302  302  302  302  302  302  404  302
{_PB}/invoices/<invoice_id>.csv   GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}webhooks                      GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}webhooks/new                  GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}webhooks/new                  POST   302  403  422  302  302  302  302  302  302  302  404  302
{_PW}                             GET    302  403  200  302  302  302  302  302  302  302  404  302
{_PW}/change                      GET    302  403  200  302  302  302  302  302  302  302  404  302
{_PW}/change                      POST   302  403  422  302  302  302  302  302  302  302  404  302
{_PW}/rotate                      GET    302  403  200  302  302  302  302  302  302  302  404  302
{_PW}/rotate                      POST   302  403  422  302  302  302  302  302  302  302  404  302
{_PW}/enable                      GET    302  403  200  302  302  302  302  302  302  302  404  302
{_PW}/enable                      POST   302  403  302  302  302  302  302  302  302  302  404  302
{_PW}/disable                     GET    302  403  200  302  302  302  302  302  302  302  404  302
{_PW}/disable                     POST   302  403  302  302  302  302  302  302  302  302  404  302
{_PW}/test                        POST   302  403  302  302  302  302  302  302  302  302  404  302
{_PW}/delete                      GET    302  403  200  302  302  302  302  302  302  302  404  302
{_PW}/delete                      POST   302  403  422  302  302  302  302  302  302  302  404  302
{_PD}                             GET    302  403  200  302  302  302  302  302  302  302  404  302
{_PD}/redeliver                   POST   302  403  302  302  302  302  302  302  302  302  404  302
{_P}audit                         GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}audit/export.csv              GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}audit/<event_id>              GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}settings                      GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}settings                      POST   302  403  422  302  302  302  302  302  302  302  404  302
{_P}settings/export               GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}settings/export               POST   302  403  200  302  302  302  302  302  302  302  404  302
{_P}settings/close                GET    302  403  403  302  302  302  302  302  302  302  404  302
{_P}settings/close                POST   302  403  403  302  302  302  302  302  302  302  404  302
{_P}members/invite                GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}members/invite                POST   302  403  422  302  302  302  302  302  302  302  404  302
{_P}members/<member_id>           GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}members/<member_id>           POST   302  403  422  302  302  302  302  302  302  302  404  302
{_P}members/<member_id>/remove    GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}members/<member_id>/remove    POST   302  403  422  302  302  302  302  302  302  302  404  302
{_P}members/<member_id>/transfer  GET    302  403  403  302  302  302  302  302  302  302  404  302
{_P}members/<member_id>/transfer  POST   302  403  403  302  302  302  302  302  302  302  404  302
{_P}invitations/<invitation_id>/resend POST 302 403 302 302  302  302  302  302  302  302  404  302
{_P}invitations/<invitation_id>/withdraw POST 302 403 302 302 302 302  302  302  302  302  404  302
{_P}leave                         GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}leave                         POST   302  422  422  302  302  302  302  302  302  302  404  302
{_P}sign-on                       GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}sign-on                       POST   302  403  403  302  302  302  302  302  302  302  404  302
{_P}sign-on/demands               POST   302  403  403  302  302  302  302  302  302  302  404  302
{_P}sign-on/remove                GET    302  403  403  302  302  302  302  302  302  302  404  302
{_P}sign-on/remove                POST   302  403  403  302  302  302  302  302  302  302  404  302
{_P}sign-on/domains               POST   302  403  403  302  302  302  302  302  302  302  404  302
{_P}sign-on/domains/<mail_domain_id>/verify POST 302 403 403 302 302 302 302 302 302 302 404 302
{_P}sign-on/domains/<mail_domain_id>/remove POST 302 403 403 302 302 302 302 302 302 302 404 302
/operators/end-acting             POST   every 302
/operators/components             GET    302  404  404  302  302  302  302  302  302  302  404  302

#                                        -    view admn  inf  use  adp  key  adm  rev  exp  glo  glk
/api/v1/session                   GET    every 200
/api/v1/session                   POST   every 200
/api/v1/session                   DELETE every 204
/api/v1/me                        GET    401  200  200  200  200  200  200  200  401  401  200  200
/api/v1/me/sessions               GET    401  200  200  403  403  403  403  403  401  401  200  403
/api/v1/me/sessions               DELETE 401  204  204  403  403  403  403  403  401  401  204  403
/api/v1/me/sessions/<session_id>  DELETE 401  404  404  403  403  403  403  403  401  401  404  403
/api/v1/usage                     GET    401  200  200  403  200  403  403  200  401  401  200  200
/api/v1/costs                     GET    401  200  200  403  200  403  403  200  401  401  200  200
/api/v1/tenants                   GET    401  200  200  403  403  403  200  200  401  401  200  200
{_T}                              GET    401  200  200  403  403  403  200  200  401  401  404  404
{_T}                              PATCH  401  403  200  403  403  403  403  200  401  401  404  404
{_T}/export                       POST   401  403  200  403  403  403  403  200  401  401  404  404
{_T}/close                        POST   401  403  403  403  403  403  403  403  401  401  404  404
{_T}/projects                     GET    401  200  200  403  403  403  200  200  401  401  404  404
{_T}/projects                     POST   401  403  201  403  403  403  403  201  401  401  404  404
{_T}/projects/<project_id>        GET    401  200  200  403  403  403  200  200  401  401  404  404
{_T}/projects/<project_id>        PATCH  401  403  200  403  403  403  403  200  401  401  404  404
{_T}/keys                         GET    401  200  200  403  403  403  200  200  401  401  404  404
{_T}/keys                         POST   401  403  201  403  403  403  201  201  401  401  404  404
{_T}/keys/<key_id>                GET    401  200  200  403  403  403  200  200  401  401  404  404
{_T}/keys/<key_id>                PATCH  401  403  200  403  403  403  200  200  401  401  404  404
{_T}/keys/<key_id>/rotate         POST   401  403  200  403  403  403  200  200  401  401  404  404
{_T}/keys/<key_id>/revoke         POST   401  403  200  403  403  403  200  200  401  401  404  404
{_T}/members                      GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/members                      POST   401  403  202  403  403  403  403  202  401  401  404  404
{_T}/members/<member_id>          GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/members/<member_id>          PATCH  401  403  200  403  403  403  403  200  401  401  404  404
{_T}/members/<member_id>          DELETE 401  403  204  403  403  403  403  204  401  401  404  404
{_T}/invitations                  GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/invitations                  POST   401  403  201  403  403  403  403  201  401  401  404  404
{_T}/invitations/<invitation_id>  GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/invitations/<invitation_id>  DELETE 401  403  204  403  403  403  403  204  401  401  404  404
{_T}/invitations/<invitation_id>/resend POST 401 403 200 403 403  403  403  200  401  401  404  404
{_T}/membership                   DELETE 401  204  204  403  403  403  403  403  401  401  404  404
{_T}/transfer                     POST   401  403  403  403  403  403  403  403  401  401  404  404
/api/v1/invitations/accept        POST   401  409  409  403  403  403  403  403  401  401  409  403
{_T}/quotas                       GET    401  200  200  403  403  403  200  200  401  401  404  404
{_T}/quotas                       POST   401  403  201  403  403  403  403  201  401  401  404  404
{_T}/quotas/<quota_id>            GET    401  200  200  403  403  403  200  200  401  401  404  404
{_T}/quotas/<quota_id>            PATCH  401  403  200  403  403  403  403  200  401  401  404  404
{_T}/quotas/<quota_id>            DELETE 401  403  204  403  403  403  403  204  401  401  404  404
{_T}/quota-alerts                 GET    401  200  200  403  403  403  200  200  401  401  404  404
{_T}/usage                        GET    401  200  200  403  200  403  403  200  401  401  404  404
{_T}/costs                        GET    401  200  200  403  200  403  403  200  401  401  404  404
{_T}/invoices                     GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/invoices/<invoice_id>        GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/invoices/<invoice_id>.pdf    GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/invoices/<invoice_id>.csv    GET    401  403  200  403  403  403  403  200  401  401  404  404
{_L}/usage                        GET    401  403  200  403  403  403  403  200  401  401  404  404
{_L}/usage.csv                    GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/tier                         GET    401  200  200  403  403  403  200  200  401  401  404  404
{_T}/models                       GET    401  200  200  403  403  403  200  200  401  401  404  404
{_T}/adapters                     GET    401  200  200  403  403  200  403  200  401  401  404  404
{_T}/adapters                     POST   401  403  201  403  403  201  403  201  401  401  404  404
{_A}                              GET    401  200  200  403  403  200  403  200  401  401  404  404
{_A}                              PATCH  401  403  200  403  403  200  403  200  401  401  404  404
{_A}                              DELETE 401  403  204  403  403  204  403  204  401  401  404  404
{_A}/usage                        GET    401  200  200  403  200  403  403  200  401  401  404  404
{_A}/versions                     GET    401  200  200  403  403  200  403  200  401  401  404  404
# A file that is not completed yet is as one that is not there.
{_A}/versions                     POST   401  403  404  403  403  404  403  404  401  401  404  404
{_AV}                             GET    401  200  200  403  403  200  403  200  401  401  404  404
{_AV}                             DELETE 401  403  204  403  403  204  403  204  401  401  404  404
{_AV}/archive                     POST   401  403  200  403  403  200  403  200  401  401  404  404
{_T}/audit                        GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/balance                      GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/transactions                 GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/transactions/<transaction_id> GET   401  403  200  403  403  403  403  200  401  401  404  404
{_T}/balance-alert                GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/balance-alert                PATCH  401  403  200  403  403  403  403  200  401  401  404  404
{_W}                              GET    401  403  200  403  403  403  403  200  401  401  404  404
{_W}                              POST   401  403  201  403  403  403  403  201  401  401  404  404
{_E}                              GET    401  403  200  403  403  403  403  200  401  401  404  404
{_E}                              PATCH  401  403  200  403  403  403  403  200  401  401  404  404
{_E}                              DELETE 401  403  204  403  403  403  403  204  401  401  404  404
{_E}/rotate                       POST   401  403  200  403  403  403  403  200  401  401  404  404
{_E}/test                         POST   401  403  201  403  403  403  403  201  401  401  404  404
{_E}/deliveries                   GET    401  403  200  403  403  403  403  200  401  401  404  404
{_D}                              GET    401  403  200  403  403  403  403  200  401  401  404  404
{_D}/redeliver                    POST   401  403  200  403  403  403  403  200  401  401  404  404
{_T}/sign-on                      GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/sign-on                      PATCH  401  403  403  403  403  403  403  403  401  401  404  404
{_T}/sign-on                      DELETE 401  403  403  403  403  403  403  403  401  401  404  404
{_T}/mail-domains                 GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/mail-domains                 POST   401  403  403  403  403  403  403  403  401  401  404  404
{_T}/mail-domains/<mail_domain_id> GET   401  403  200  403  403  403  403  200  401  401  404  404
{_T}/mail-domains/<mail_domain_id> DELETE 401 403  403  403  403  403  403  403  401  401  404  404
{_T}/mail-domains/<mail_domain_id>/verify POST 401 403 403 403 403 403 403 403 401 401 404 404
# Uploads are Django's, below /v1; the gate before them is the gateway's key check. 415 is no form.
/v1/uploads                       POST   401  401  401  403  403  200  403  200  401  401  401  200
/v1/uploads/<upload_id>           GET    401  401  401  403  403  200  403  200  401  401  401  404
/v1/uploads/<upload_id>/parts     POST   415  415  415  415  415  415  415  415  415  415  415  415
/v1/uploads/<upload_id>/complete  POST   401  401  401  403  403  400  403  400  401  401  401  404
/v1/uploads/<upload_id>/cancel    POST   401  401  401  403  403  200  403  200  401  401  401  404
/v1/^uploads/                     ANY    every 404
# A signed address is the credential.
/blobs/<path>                     GET    every 403
/api/v1/schema/                   GET    every 200
/api/v1/schema                    GET    every 200
# Signed by Stripe or refused; here nobody expects it.
/api/v1/payments/stripe           POST   every 404
/api/v1/*                         ANY    every 404
"""

# A session is no credential here. 400 is an empty request that got past the gate.
_GATEWAY: Final = """
#                                        -    view admn  inf  use  adp  key  adm  rev  exp  glo  glk
/v1/models                        GET    401  401  401  200  200  200  200  200  401  401  401  200
/v1/models/<model>                GET    401  401  401  200  200  200  200  200  401  401  401  404
/v1/limits                        GET    401  401  401  200  200  200  200  200  401  401  401  200
/v1/chat/completions              POST   401  401  401  400  403  403  403  400  401  401  401  400
/v1/completions                   POST   401  401  401  400  403  403  403  400  401  401  401  400
/v1/stream/tickets                POST   401  401  401  200  403  403  403  200  401  401  401  200
/v1/*                             ANY    every 404
/healthz                          GET    every 200
/readyz                           GET    every 503
/metrics                          GET    every 200
"""

# 101 is a connection.
_WEBSOCKETS: Final = """
/ws/v1/stream                     CONNECT 401 401  401  101  403  403  403  101  401  401  401  101
/ws/*                             CONNECT every 403
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """`statuses` are in the order of `COLUMNS`."""

    address: str
    method: str
    statuses: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.method} {self.address}"


def _rows(text: str) -> dict[tuple[str, str], Row]:
    rows = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        address, method, *words = line.split()
        if words[0] == "every":
            words = words[1:] * len(COLUMNS)
        statuses = tuple(map(int, words))
        assert len(statuses) == len(COLUMNS), line
        assert (address, method) not in rows, f"{line} stands twice"
        rows[address, method] = Row(address=address, method=method, statuses=statuses)
    return rows


DJANGO_ROWS: Final = _rows(_DJANGO)
GATEWAY_ROWS: Final = _rows(_GATEWAY)
WEBSOCKET_ROWS: Final = _rows(_WEBSOCKETS)


def methods_of(rows: dict[tuple[str, str], Row], address: str) -> list[str]:
    return [method for at, method in rows if at == address]
