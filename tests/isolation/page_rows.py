"""The rows of pages for people, and of what anybody may read. See `table`."""

from typing import Final

_P: Final = "/t/<tenant_id>/"
_PB: Final = f"{_P}billing"
_PW: Final = f"{_P}webhooks/<endpoint_id>"
_PA: Final = f"{_P}adapters/<adapter_id>"
_PV: Final = f"{_PA}/versions/<version_id>"
_PU: Final = f"{_P}adapters/uploads"
_PD: Final = f"{_PW}/deliveries/<delivery_id>"

PAGES: Final = f"""
/                                 GET    every 200
# Documentation for anybody.
/docs                             GET    every 302
/docs/                            GET    every 302
/docs/api                         GET    every 200
/docs/api/<slug>                  GET    every 200
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
{_P}now                           GET    302  200  200  302  302  302  302  302  302  302  404  302
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
{_P}models                        GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}usage                         GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}usage                         POST   302  422  422  302  302  302  302  302  302  302  404  302
{_P}usage/labels                  GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}usage/labels.csv              GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}usage/views/<view_id>/delete  POST   302  302  302  302  302  302  302  302  302  302  404  302
{_P}usage.csv                     GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}playground                    GET    302  403  200  302  302  302  302  302  302  302  404  302
{_P}playground/tickets            POST   302  403  404  302  302  302  302  302  302  302  404  302
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
{_PA}/pin                         POST   302  403  302  302  302  302  302  302  302  302  404  302
{_PA}/unpin                       POST   302  403  302  302  302  302  302  302  302  302  404  302
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
{_P}refusals                      GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}refusals/export.csv           GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}requests                      GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}requests/export.csv           GET    302  200  200  302  302  302  302  302  302  302  404  302
{_P}requests/<request_id>         GET    302  200  200  302  302  302  302  302  302  302  404  302
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
{_P}sign-on/domains/<mail_domain_id>/remove GET 302 403 403 302 302 302 302 302 302 302 404 302
{_P}sign-on/domains/<mail_domain_id>/remove POST 302 403 403 302 302 302 302 302 302 302 404 302
/operators/end-acting             POST   every 302
/operators/components             GET    302  404  404  302  302  302  302  302  302  302  404  302

"""
