"""One-time tickets with which browsers open a websocket: they can set no headers there. Whoever
issues one writes its entry to the dispatch Redis; a gateway takes it away as it redeems it.

A page's ticket is bound to the session that asked for it: its name in Redis is made of both, so
that with another session's cookie, or none, it is no ticket at all.
"""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.policy import Caller

TICKET_SECONDS: Final = 30


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """`text` is for whoever asked, once; `key` and `entry` are what Redis holds, for
    `TICKET_SECONDS`, neither of which tells the text."""

    text: str
    key: str
    entry: bytes


def new_ticket(caller: Caller, *, session: str = "") -> Ticket:
    """Return a ticket that stands for the caller; `session` is the key of the one it is for."""
    text = secrets.token_urlsafe(32)
    return Ticket(text=text, key=ticket_key(text, session=session), entry=codec.encode(caller))


def ticket_key(text: str, *, session: str = "") -> str:
    """Return the key in Redis of a ticket as it was presented, with the session that did."""
    presented = f"{session}\n{text}" if session else text
    return keys.stream_ticket(hashlib.sha256(presented.encode(errors="replace")).hexdigest())
