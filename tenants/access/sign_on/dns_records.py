"""TXT records of the DNS, asked for in a bounded time."""

from typing import Final

from tenants.errors import Conflict

_SECONDS: Final = 5.0
_MAX_RECORDS: Final = 50


def txt_records(name: str) -> list[str]:
    """Return the texts at a name, none where there is none. Raises `Conflict` where the DNS does
    not answer."""
    # Nobody else needs it, and it is large.
    import dns.exception
    import dns.resolver

    try:
        found = dns.resolver.resolve(name, "TXT", lifetime=_SECONDS, search=False)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        return []
    except dns.exception.DNSException:
        raise Conflict(
            f"The DNS gave no answer for {name}; try again in a minute.", code="dns_unavailable"
        ) from None
    return [
        b"".join(record.strings).decode("utf-8", errors="replace")
        for record in list(found)[:_MAX_RECORDS]
    ]
