"""Every environment variable of the control plane and the gateway, read here and nowhere else.

`.env.example` lists the same variables; a test keeps the two equal. A variable of a secret may be
given as `<NAME>_FILE`, the path of a file that holds it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import parseaddr
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Self
from urllib.parse import SplitResult, urlsplit

from gpu_workers.protocol import redis_url

MIN_SECRET_CHARACTERS = 32
LOG_FORMATS = ("console", "json")
PAYMENT_PROVIDERS = ("manual", "stripe")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

Network = IPv4Network | IPv6Network


class InvalidSettings(ValueError):
    """One or more variables are missing or wrong; the text names every one of them.

    `variables` are their names, in the order in which they were read.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        """Each problem is a sentence that begins with the name of its variable."""
        told = tuple(dict.fromkeys(problems))
        super().__init__("; ".join(told))
        self.variables = tuple(problem.split()[0].rstrip(":") for problem in told)


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
    # Take API requests over http from anywhere; for a closed network only.
    allow_clear_text: bool
    # Largest request body that the gateway reads, in bytes.
    max_body_bytes: int
    # What each pool holds of requests, waiting and running, in bytes of the dispatch Redis; of all
    # pools together at most half of its `maxmemory`.
    max_queue_bytes: int
    # How long a client may take in nothing before its connection is ended, in seconds.
    stall_seconds: int
    # One line an event: `console` for people, `json` for collectors.
    log_format: str
    # DEBUG, INFO, WARNING, ERROR or CRITICAL.
    log_level: str

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """Read and check all variables; raises `InvalidSettings` that names every bad one."""
        reader = _Reader(environ)
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
    # Redis for Celery, Channels and the cache; must not be the dispatch one in production.
    redis_url: str = field(repr=False)
    # Django's secrets before it, with commas between: what they signed is valid, and the secrets of
    # webhooks that they made are known, for as long as they stand here.
    previous_secret_keys: tuple[str, ...] = field(repr=False)
    # Let webhooks go to this machine, over http too; for development and tests only.
    webhook_allow_loopback: bool
    # Public addresses and networks that webhooks may not be sent to: the operator's own.
    webhook_denied_networks: tuple[Network, ...]
    # Mail server for alerts: smtps://user:password@host:465, smtp+starttls://…:587, or smtp://host:25
    # for one that needs neither; default: e-mails are written to the log of the Celery worker.
    email_url: str = field(repr=False)
    # Who e-mails are from.
    email_from: str
    # Who collects what invoices ask for: `manual` (an operator notes payments) or `stripe`.
    payment_provider: str
    # Stripe's secret API key (sk_... or rk_...).
    stripe_api_key: str = field(repr=False)
    # The secret (whsec_...) under which Stripe signs the webhooks that it sends us.
    stripe_webhook_secret: str = field(repr=False)
    # Where Stripe's API is.
    stripe_api_base: str
    # A TrueType font for invoices, embedded in each, for names in other than Western letters.
    invoice_font: str

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """Read and check all variables; raises `InvalidSettings` that names every bad one."""
        reader = _Reader(environ)
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
            "redis_url": reader.url("PENSTOCK_REDIS_URL", schemes=_REDIS_SCHEMES),
            "previous_secret_keys": tuple(reader.strong_secrets("PENSTOCK_PREVIOUS_SECRET_KEYS")),
            "webhook_allow_loopback": reader.flag("PENSTOCK_WEBHOOK_ALLOW_LOOPBACK", default=False),
            "webhook_denied_networks": reader.networks("PENSTOCK_WEBHOOK_DENIED_NETWORKS"),
            "email_url": reader.mail_url("PENSTOCK_EMAIL_URL"),
            "email_from": reader.mailbox("PENSTOCK_EMAIL_FROM", default="penstock@localhost"),
            **_payment_values(reader),
            "invoice_font": reader.file("PENSTOCK_INVOICE_FONT"),
        }
        reader.raise_if_bad()
        return cls(**values)  # type: ignore[arg-type]


_MAIL_SCHEMES = ("smtps", "smtp+starttls", "smtp")
_REDIS_SCHEMES = ("redis", "rediss", "unix")
_DISPATCH_REDIS_URL = "PENSTOCK_DISPATCH_REDIS_URL"
_GATEWAY_REDIS_URL = "PENSTOCK_GATEWAY_REDIS_URL"


def _gateway_values(reader: "_Reader") -> dict[str, object]:
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
        "allowed_origins": reader.origins("PENSTOCK_ALLOWED_ORIGINS") or (_origin(public_url),),
        "trusted_proxies": reader.networks("PENSTOCK_TRUSTED_PROXIES"),
        "allow_clear_text": reader.flag("PENSTOCK_ALLOW_CLEAR_TEXT", default=False),
        "max_body_bytes": reader.positive("PENSTOCK_MAX_BODY_BYTES", default=4 * 1024 * 1024),
        "max_queue_bytes": reader.positive("PENSTOCK_MAX_QUEUE_BYTES", default=256 * 1024 * 1024),
        "stall_seconds": reader.positive("PENSTOCK_STALL_SECONDS", default=30),
        "log_format": reader.choice("PENSTOCK_LOG_FORMAT", LOG_FORMATS, default="console"),
        "log_level": reader.choice("PENSTOCK_LOG_LEVEL", LOG_LEVELS, default="INFO"),
    }


def _payment_values(reader: "_Reader") -> dict[str, object]:
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


class _Reader:
    """Reads typed values and collects every problem, to be reported all at once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._problems: list[str] = []

    def raise_if_bad(self) -> None:
        """Raise `InvalidSettings` with every problem found, if there is any."""
        if self._problems:
            raise InvalidSettings(self._problems)

    def is_given(self, name: str) -> bool:
        return bool(self._text(name) or self._text(f"{name}_FILE"))

    def secret(self, name: str, *, is_needed: bool) -> str:
        """Read a secret of a third party, so of any length; empty if not given and not needed."""
        return self._secret(name) if is_needed or self.is_given(name) else ""

    def file(self, name: str) -> str:
        """Read the path of a file that exists; empty where none is named."""
        path = self._text(name)
        if path and not Path(path).is_file():
            self._problems.append(f"{name} must be the path of a file, got: {path!r}")
        return path

    def strong_secret(self, name: str) -> str:
        secret = self._secret(name)
        if secret and len(secret) < MIN_SECRET_CHARACTERS:
            self._problems.append(
                f"{name} must have at least {MIN_SECRET_CHARACTERS} characters, has {len(secret)}"
            )
        return secret

    def strong_secrets(self, name: str) -> list[str]:
        """Read any number of secrets, separated by commas or newlines."""
        if not self.is_given(name):
            return []
        secrets = [part.strip() for part in self._secret(name).replace("\n", ",").split(",")]
        given = list(filter(None, secrets))
        if any(len(secret) < MIN_SECRET_CHARACTERS for secret in given):
            self._problems.append(
                f"{name} must hold secrets of at least {MIN_SECRET_CHARACTERS} characters, "
                "separated by commas"
            )
        return given

    def url(
        self, name: str, *, schemes: tuple[str, ...], default: str = "", needs_path: bool = False
    ) -> str:
        """Read a URL, which may hold a password, so it is never repeated in a problem."""
        text = default if default and not self.is_given(name) else self._secret(name)
        return self._check_url(name, text, schemes=schemes, needs_path=needs_path)

    def _check_url(
        self, name: str, text: str, *, schemes: tuple[str, ...], needs_path: bool = False
    ) -> str:
        parts = _split(text)
        # PostgreSQL's socket folder may be given as ?host=/path.
        has_place = parts is not None and bool(
            parts.hostname or parts.scheme == "unix" or "host=" in parts.query
        )
        if not text:
            return ""
        if parts is None or parts.scheme not in schemes or not has_place:
            self._problems.append(f"{name} must be a URL like {schemes[0]}://host:port")
        elif needs_path and parts.path.strip("/") == "":
            self._problems.append(f"{name} must name a database: {schemes[0]}://host:port/name")
        return text

    def redis_url(self, name: str) -> str:
        """Read the URL of one Redis, or of the Sentinels that know its master."""
        text = self._secret(name)
        if not redis_url.is_sentinel(text):
            return self._check_url(name, text, schemes=_REDIS_SCHEMES)
        try:
            redis_url.parse_sentinel(text)
        except ValueError as problem:
            self._problems.append(f"{name}: {problem}")
        return text

    def optional_url(self, name: str, *, schemes: tuple[str, ...], needs_path: bool) -> str:
        if not self.is_given(name):
            return ""
        return self.url(name, schemes=schemes, needs_path=needs_path)

    def mail_url(self, name: str) -> str:
        """Read the URL of a mail server; its password is never sent without TLS."""
        url = self.optional_url(name, schemes=_MAIL_SCHEMES, needs_path=False)
        parts = _split(url)
        if parts is not None and parts.scheme == "smtp" and parts.password:
            self._problems.append(
                f"{name} would send its password in clear text: use smtps:// or smtp+starttls://"
            )
        return url

    def mailbox(self, name: str, *, default: str) -> str:
        text = self._text(name) or default
        if parseaddr(text)[1].count("@") != 1 or "\n" in text:
            self._problems.append(f"{name} must be an address like Penstock <alerts@host>")
        return text

    def origins(self, name: str) -> tuple[str, ...]:
        origins = self.words(name)
        for origin in origins:
            parts = _split(origin)
            if parts is None or not parts.hostname or origin != _origin(origin):
                self._problems.append(
                    f"{name} must hold origins like https://host:port, got: {origin!r}"
                )
        return origins

    def networks(self, name: str) -> tuple[Network, ...]:
        """Read addresses and networks; refuse /0, as then anybody could pose as anybody."""
        networks: list[Network] = []
        for word in self.words(name):
            try:
                network = ip_network(word)
            except ValueError:
                network = None
            if network is None or network.prefixlen == 0:
                self._problems.append(
                    f"{name} must hold addresses or networks like 10.0.0.0/8, got: {word!r}"
                )
            else:
                networks.append(network)
        return tuple(networks)

    def words(self, name: str) -> tuple[str, ...]:
        return tuple(word.strip() for word in self._text(name).split(",") if word.strip())

    def flag(self, name: str, *, default: bool) -> bool:
        text = self._text(name).lower()
        if text not in {"", "0", "1", "false", "true", "no", "yes"}:
            self._problems.append(f"{name} must be 1 or 0, got: {text!r}")
        return text in {"1", "true", "yes"} if text else default

    def positive(self, name: str, *, default: int) -> int:
        text = self._text(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and int(text) > 0):
            self._problems.append(f"{name} must be a whole number above 0, got: {text!r}")
            return default
        return int(text)

    def choice(self, name: str, choices: tuple[str, ...], *, default: str) -> str:
        text = self._text(name) or default
        by_folded = {choice.casefold(): choice for choice in choices}
        if text.casefold() not in by_folded:
            self._problems.append(f"{name} must be one of {', '.join(choices)}, got: {text!r}")
        return by_folded.get(text.casefold(), default)

    def _text(self, name: str) -> str:
        return self._environ.get(name, "").strip()

    def _secret(self, name: str) -> str:
        path = self._text(f"{name}_FILE")
        if not path:
            text = self._text(name)
            if not text:
                self._problems.append(f"{name} is missing")
            return text
        if self._text(name):
            self._problems.append(f"{name} and {name}_FILE are both given; keep one")
        try:
            text = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            self._problems.append(f"{name}_FILE cannot be read from {path}: {reason}")
            return ""
        if not text:
            self._problems.append(f"{name}_FILE is empty: {path}")
        return text


def _split(text: str) -> SplitResult | None:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _origin(url: str) -> str:
    parts = _split(url)
    return f"{parts.scheme}://{parts.netloc}" if parts else ""
