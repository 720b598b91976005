"""Every environment variable of the control plane and the gateway, read here and nowhere else.

`.env.example` lists the same variables; a test keeps the two equal. A variable of a secret may be
given as `<NAME>_FILE`, the path of a file that holds it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from ipaddress import ip_network
from typing import Self
from urllib.parse import urlsplit

from control_plane.env_reader import REDIS_SCHEMES, InvalidSettings, Network, Reader, origin_of

__all__ = ["GatewayEnvironment", "InvalidSettings", "Network", "Settings"]

SIGN_UP_MODES = ("open", "invited", "off")
LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
HSTS_SCOPES = ("host", "subdomains", "preload")
LOG_FORMATS = ("console", "json")
PAYMENT_PROVIDERS = ("manual", "stripe")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


@dataclass(frozen=True, kw_only=True)
class GatewayEnvironment:
    """What the gateway needs when it runs alone: neither PostgreSQL nor Django's secret."""

    # Secret under which API keys are digested (32 characters or more); a new one needs the one
    # before among the previous ones, or it voids all keys.
    api_key_pepper: bytes = field(repr=False)
    # The dispatch Redis as the gateway's user, who cannot write policy; default: the dispatch URL.
    gateway_redis_url: str = field(repr=False)
    # Peppers before it, with commas between: keys digested under them work until each has been
    # used, or rotated, under the new one.
    previous_api_key_peppers: tuple[bytes, ...] = field(repr=False)
    # Address under which callers reach the service; https switches the secure cookies on.
    public_url: str
    # Origins from which browsers may open websockets and post forms; default: the public URL's.
    allowed_origins: tuple[str, ...]
    # Proxies whose X-Forwarded-For and -Proto are believed: addresses, networks; default: nobody's.
    trusted_proxies: tuple[Network, ...]
    # Take keys, passwords and sessions over http from anywhere; for a closed network only.
    allow_clear_text: bool
    # Largest request body that the gateway reads, in bytes.
    max_body_bytes: int
    # What each pool holds of requests, waiting and running, in bytes of the dispatch Redis; of all
    # pools together at most half of its `maxmemory`.
    max_queue_bytes: int
    # How long a client may take in nothing before its connection is ended, in seconds.
    stall_seconds: int
    # A model is refused at once (503 no_worker) when no worker of it was heard of for so long, in
    # seconds; within it a restart is expected, and requests wait.
    worker_expected_seconds: int
    # Bearer token (32 characters or more) with which a scraper sees every model and pool on
    # /metrics, and the workers on /metrics/targets; without one, nobody does.
    metrics_token: str = field(repr=False)
    # Networks in which /metrics is shown without it, summed over what is not public, and so are the
    # details of /readyz and of the front page; default: this machine alone.
    metrics_networks: tuple[Network, ...]
    # OTLP over HTTP, such as http://collector:4318/v1/traces: where spans of requests are sent,
    # with penstock[otel] installed. Without one, nothing is traced.
    traces_endpoint: str = field(repr=False)
    # One line an event: `console` for people, `json` for collectors.
    log_format: str
    # DEBUG, INFO, WARNING, ERROR or CRITICAL.
    log_level: str

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """Read and check all variables; raises `InvalidSettings` that names every bad one."""
        reader = Reader(environ)
        values = _gateway_values(reader)
        reader.raise_if_bad()
        return cls(**values)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Settings(GatewayEnvironment):
    """What the whole control plane needs."""

    # Django's secret for sessions and signatures (32 characters or more).
    secret_key: str = field(repr=False)
    # Django's debug pages and unhashed static files; never in production.
    debug: bool
    # Hosts that Django answers to, separated by commas; default: the public URL's and loopback.
    allowed_hosts: tuple[str, ...]
    # PostgreSQL: postgresql://user:password@host:port/name
    database_url: str = field(repr=False)
    # PostgreSQL as the owner of the tables, for `manage.py migrate` alone.
    owner_database_url: str = field(repr=False)
    # PostgreSQL as a superuser, for `manage.py create_database_roles` alone.
    admin_database_url: str = field(repr=False)
    # Redis that bears queues, streams and the policy snapshot, as the control plane's user; with
    # Sentinels redis+sentinel://user:password@host:port,host:port/<master name>/0.
    dispatch_redis_url: str = field(repr=False)
    # Redis for Celery and the cache; must not be the dispatch one in production.
    redis_url: str = field(repr=False)
    # Django's secrets before it, with commas between: what they signed is valid, and the secrets of
    # webhooks that they made are known, for as long as they stand here.
    previous_secret_keys: tuple[str, ...] = field(repr=False)
    # With an https public URL browsers are told for a year to come by https alone: to this `host`,
    # to its `subdomains` too, or those and in their own lists, `preload`.
    hsts: str
    # Calls of the management API that one person, or one API key, may make a minute.
    api_calls_per_minute: int
    # Pages, and parts of them that keep themselves current, that one person may ask for a minute.
    pages_per_minute: int
    # Let webhooks go to this machine, over http too; for development and tests only.
    webhook_allow_loopback: bool
    # Public addresses and networks that webhooks may not be sent to: the operator's own.
    webhook_denied_networks: tuple[Network, ...]
    # Mail server: smtps://user:password@host:465, smtp+starttls://…:587, or smtp://host:25 for one
    # that needs neither; or file:/folder, where e-mails are written to. Default: alerts are written
    # to the log of the Celery worker, and people get no e-mail about their account.
    email_url: str = field(repr=False)
    # Who e-mails are from.
    email_from: str
    # Who may make an account: `open` (anybody, with a tenant of their own), `invited`, or `off`.
    sign_up: str
    # SLA tier of tenants that sign up; they are prepaid.
    sign_up_tier: str
    # Promotional credit that each of them starts with, in dollars.
    sign_up_credit: Decimal
    # Who collects what invoices ask for: `manual` (an operator notes payments) or `stripe`.
    payment_provider: str
    # Stripe's secret API key (sk_... or rk_...).
    stripe_api_key: str = field(repr=False)
    # The secret (whsec_...) under which Stripe signs the webhooks that it sends us.
    stripe_webhook_secret: str = field(repr=False)
    # Where Stripe's API is.
    stripe_api_base: str
    # Where adapters and uploads are kept, sealed: file:/folder, which all processes of the control
    # plane share, or s3://bucket/prefix with the usual AWS_ variables; a relative folder is one of
    # the checkout's.
    blob_store_url: str
    # A TrueType font for invoices, embedded in each, for names in other than Western letters.
    invoice_font: str

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """Read and check all variables; raises `InvalidSettings` that names every bad one."""
        reader = Reader(environ)
        values = _gateway_values(reader)
        host = urlsplit(str(values["public_url"])).hostname or "localhost"
        loopback = ("localhost", "127.0.0.1", "[::1]")
        values |= {
            "secret_key": reader.strong_secret("PENSTOCK_SECRET_KEY"),
            "debug": reader.flag("PENSTOCK_DEBUG", default=False),
            "allowed_hosts": reader.words("PENSTOCK_ALLOWED_HOSTS")
            or tuple(dict.fromkeys((host, *loopback))),
            "database_url": reader.url(
                "PENSTOCK_DATABASE_URL", schemes=("postgresql", "postgres"), needs_path=True
            ),
            "owner_database_url": reader.optional_url(
                "PENSTOCK_OWNER_DATABASE_URL", schemes=("postgresql", "postgres"), needs_path=True
            ),
            "admin_database_url": reader.optional_url(
                "PENSTOCK_ADMIN_DATABASE_URL", schemes=("postgresql", "postgres"), needs_path=True
            ),
            "dispatch_redis_url": reader.redis_url(_DISPATCH_REDIS_URL),
            "redis_url": reader.url("PENSTOCK_REDIS_URL", schemes=REDIS_SCHEMES),
            "previous_secret_keys": tuple(reader.strong_secrets("PENSTOCK_PREVIOUS_SECRET_KEYS")),
            "hsts": reader.choice("PENSTOCK_HSTS", HSTS_SCOPES, default="host"),
            "api_calls_per_minute": reader.positive("PENSTOCK_API_CALLS_PER_MINUTE", default=600),
            "pages_per_minute": reader.positive("PENSTOCK_PAGES_PER_MINUTE", default=1200),
            "webhook_allow_loopback": reader.flag("PENSTOCK_WEBHOOK_ALLOW_LOOPBACK", default=False),
            "webhook_denied_networks": reader.networks("PENSTOCK_WEBHOOK_DENIED_NETWORKS"),
            "email_url": reader.mail_url("PENSTOCK_EMAIL_URL"),
            "email_from": reader.mailbox("PENSTOCK_EMAIL_FROM", default="penstock@localhost"),
            "sign_up": reader.choice("PENSTOCK_SIGN_UP", SIGN_UP_MODES, default="invited"),
            "sign_up_tier": reader.text("PENSTOCK_SIGN_UP_TIER", default="free"),
            "sign_up_credit": reader.dollars("PENSTOCK_SIGN_UP_CREDIT"),
            **_payment_values(reader),
            "blob_store_url": reader.blob_store_url(
                "PENSTOCK_BLOB_STORE_URL", default="file:var/blobs"
            ),
            "invoice_font": reader.file("PENSTOCK_INVOICE_FONT"),
        }
        reader.raise_if_bad()
        return cls(**values)  # type: ignore[arg-type]


_DISPATCH_REDIS_URL = "PENSTOCK_DISPATCH_REDIS_URL"
_GATEWAY_REDIS_URL = "PENSTOCK_GATEWAY_REDIS_URL"


def _gateway_values(reader: Reader) -> dict[str, object]:
    public_url = reader.url(
        "PENSTOCK_PUBLIC_URL", schemes=("http", "https"), default="http://127.0.0.1:8000"
    ).rstrip("/")
    has_own_user = reader.is_given(_GATEWAY_REDIS_URL)
    return {
        "api_key_pepper": reader.strong_secret("PENSTOCK_API_KEY_PEPPER").encode(),
        "gateway_redis_url": reader.redis_url(
            _GATEWAY_REDIS_URL if has_own_user else _DISPATCH_REDIS_URL
        ),
        "previous_api_key_peppers": tuple(
            pepper.encode() for pepper in reader.strong_secrets("PENSTOCK_PREVIOUS_API_KEY_PEPPERS")
        ),
        "public_url": public_url,
        "allowed_origins": reader.origins("PENSTOCK_ALLOWED_ORIGINS") or (origin_of(public_url),),
        "trusted_proxies": reader.networks("PENSTOCK_TRUSTED_PROXIES"),
        "allow_clear_text": reader.flag("PENSTOCK_ALLOW_CLEAR_TEXT", default=False),
        "max_body_bytes": reader.positive("PENSTOCK_MAX_BODY_BYTES", default=4 * 1024 * 1024),
        "max_queue_bytes": reader.positive("PENSTOCK_MAX_QUEUE_BYTES", default=256 * 1024 * 1024),
        "stall_seconds": reader.positive("PENSTOCK_STALL_SECONDS", default=30),
        "worker_expected_seconds": reader.positive("PENSTOCK_WORKER_EXPECTED_SECONDS", default=120),
        "metrics_token": reader.optional_strong_secret("PENSTOCK_METRICS_TOKEN"),
        "metrics_networks": reader.networks("PENSTOCK_METRICS_NETWORKS") or LOOPBACK,
        "traces_endpoint": reader.optional_url(
            "PENSTOCK_TRACES_ENDPOINT", schemes=("http", "https"), needs_path=False
        ),
        "log_format": reader.choice("PENSTOCK_LOG_FORMAT", LOG_FORMATS, default="console"),
        "log_level": reader.choice("PENSTOCK_LOG_LEVEL", LOG_LEVELS, default="INFO"),
    }


def _payment_values(reader: Reader) -> dict[str, object]:
    """Read the payment settings; Stripe's secrets are required only if Stripe collects."""
    provider = reader.choice("PENSTOCK_PAYMENT_PROVIDER", PAYMENT_PROVIDERS, default="manual")
    names = {
        "stripe_api_key": "PENSTOCK_STRIPE_API_KEY",
        "stripe_webhook_secret": "PENSTOCK_STRIPE_WEBHOOK_SECRET",
    }
    return {
        "payment_provider": provider,
        **{
            field_name: reader.secret(name, is_needed=provider == "stripe")
            for field_name, name in names.items()
        },
        "stripe_api_base": reader.url(
            "PENSTOCK_STRIPE_API_BASE", schemes=("https", "http"), default="https://api.stripe.com"
        ).rstrip("/"),
    }
