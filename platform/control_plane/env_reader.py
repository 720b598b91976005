"""How environment variables are read: typed, and every bad one told by its name, all at once."""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from email.utils import parseaddr
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlsplit

from gpu_workers.protocol import redis_url

MIN_SECRET_CHARACTERS = 32
REDIS_SCHEMES = ("redis", "rediss", "unix")
_MAIL_SCHEMES = ("smtps", "smtp+starttls", "smtp")

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


class Reader:
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

    def optional_strong_secret(self, name: str) -> str:
        """Read a secret of ours that need not be; empty if not given."""
        return self.strong_secret(name) if self.is_given(name) else ""

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
            return self._check_url(name, text, schemes=REDIS_SCHEMES)
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
        """Read the URL of a mail server, whose password is never sent without TLS, or of a folder
        that e-mails are written to."""
        url = self.secret(name, is_needed=False)
        parts = _split(url)
        if parts is not None and parts.scheme == "file":
            if parts.netloc or not parts.path.strip("/"):
                self._problems.append(f"{name} must name a folder, like file:/var/mail/penstock")
            return url
        self._check_url(name, url, schemes=_MAIL_SCHEMES)
        if parts is not None and parts.scheme == "smtp" and parts.password:
            self._problems.append(
                f"{name} would send its password in clear text: use smtps:// or smtp+starttls://"
            )
        return url

    def blob_store_url(self, name: str, *, default: str) -> str:
        """Read where blobs are kept: a folder, or a bucket of S3 without credentials, which have
        variables of their own."""
        text = self._text(name) or default
        parts = _split(text)
        is_folder = parts is not None and parts.scheme == "file" and bool(parts.path.strip("/"))
        is_bucket = parts is not None and parts.scheme == "s3" and bool(parts.hostname)
        if parts is None or (is_folder and parts.netloc) or not (is_folder or is_bucket):
            self._problems.append(
                f"{name} must name a folder, like file:/var/lib/penstock/blobs, or a bucket, like "
                "s3://bucket/prefix"
            )
        elif parts.username is not None or {key for key, _ in parse_qsl(parts.query)} - {
            "endpoint",
            "region",
        }:
            self._problems.append(
                f"{name} takes endpoint and region alone behind its question mark, and no "
                "credentials: those go into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        return text

    def mailbox(self, name: str, *, default: str) -> str:
        text = self._text(name) or default
        if parseaddr(text)[1].count("@") != 1 or "\n" in text:
            self._problems.append(f"{name} must be an address like Penstock <alerts@host>")
        return text

    def origins(self, name: str) -> tuple[str, ...]:
        origins = self.words(name)
        for origin in origins:
            parts = _split(origin)
            if parts is None or not parts.hostname or origin != origin_of(origin):
                self._problems.append(
                    f"{name} must hold origins like https://host:port, got: {origin!r}"
                )
        return origins

    def networks(self, name: str) -> tuple[Network, ...]:
        """Read addresses and networks, separated by commas or blanks; refuse /0, as then anybody
        could pose as anybody."""
        networks: list[Network] = []
        for word in self._text(name).replace(",", " ").split():
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

    def text(self, name: str, *, default: str) -> str:
        return self._text(name) or default

    def dollars(self, name: str) -> Decimal:
        """Read an amount in dollars, exact to the nano-dollar; nothing is zero."""
        text = self._text(name)
        if text and not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII):
            self._problems.append(
                f"{name} must be an amount in dollars like 5 or 0.50, got: {text!r}"
            )
            return Decimal(0)
        return Decimal(text or 0)

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


def origin_of(url: str) -> str:
    parts = _split(url)
    return f"{parts.scheme}://{parts.netloc}" if parts else ""
