"""The one table: every address x method x credential -> status, where Acme is asked about.

A row is an address, a method and one status for each column; `every` stands for the same in all.
What a row's address takes no row for is 405 for everybody. Addresses are those that Django's
resolver and the gateway's routes have: one without a row fails the suite, a row without one too.
"""

from dataclasses import dataclass
from typing import Final

from tests.isolation.page_rows import PAGES

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

_DJANGO: Final = (
    PAGES
    + f"""
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
/api/v1/errors                    GET    401  200  200  403  200  403  403  200  401  401  200  200
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
{_T}/refusals                     GET    401  200  200  403  200  403  403  200  401  401  404  404
{_T}/refusals/newest              GET    401  200  200  403  200  403  403  200  401  401  404  404
{_T}/errors                       GET    401  200  200  403  200  403  403  200  401  401  404  404
{_T}/invoices                     GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/invoices/<invoice_id>        GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/invoices/<invoice_id>.pdf    GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/invoices/<invoice_id>.csv    GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/usage/labels                 GET    401  200  200  403  200  403  403  200  401  401  404  404
{_T}/requests                     GET    401  200  200  403  200  403  403  200  401  401  404  404
{_T}/requests/<request_id>        GET    401  200  200  403  200  403  403  200  401  401  404  404
{_L}/usage                        GET    401  403  200  403  403  403  403  200  401  401  404  404
{_L}/usage.csv                    GET    401  403  200  403  403  403  403  200  401  401  404  404
{_T}/metrics                      GET    401  200  200  403  200  403  403  200  401  401  404  404
{_T}/tier                         GET    401  200  200  403  403  403  200  200  401  401  404  404
{_T}/models                       GET    401  200  200  403  403  403  200  200  401  401  404  404
{_T}/adapters                     GET    401  200  200  403  403  200  403  200  401  401  404  404
{_T}/adapters                     POST   401  403  201  403  403  201  403  201  401  401  404  404
{_A}                              GET    401  200  200  403  403  200  403  200  401  401  404  404
{_A}                              PATCH  401  403  200  403  403  200  403  200  401  401  404  404
{_A}                              DELETE 401  403  204  403  403  204  403  204  401  401  404  404
{_A}/usage                        GET    401  200  200  403  200  403  403  200  401  401  404  404
{_A}/pin                          POST   401  403  200  403  403  200  403  200  401  401  404  404
{_A}/unpin                        POST   401  403  200  403  403  200  403  200  401  401  404  404
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
)

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
# What bears another token than a scraper's is told so, an API key too.
/metrics                          GET    200  200  200  401  401  401  401  401  401  401  200  401
/metrics/targets                  GET    every 401
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
