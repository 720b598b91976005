"""A verb as all doors have it, and the noun that it belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tenants.permissions import Permission

TENANT: Final = "its name or id"


@dataclass(frozen=True, kw_only=True)
class Verb:
    """What is done to a noun.

    `text`: what it does, in a line; `takes`: what it is given, with units; `ends`: what becomes of
    what was there, told before it is done. `permission`: what members and API keys need, None
    where it is for operators alone; what is a person's own is not `is_for_keys`. `routes`: where
    the management API does it, below a tenant, as method and path. `command`: the words of
    manage.py that do it for operators, none where only pages do. One that `is_read` changes
    nothing.
    """

    noun: str
    name: str
    text: str
    takes: Mapping[str, str] = field(default_factory=dict)
    ends: str = ""
    permission: Permission | None = None
    routes: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    is_read: bool = False
    is_for_keys: bool = True

    def __str__(self) -> str:
        return f"{self.noun} {self.name}".strip()

    @property
    def told(self) -> str:
        """Return what it does, and what it ends."""
        return f"{self.text} {self.ends}".strip()


class Noun:
    """Makes the verbs of one noun; those that change nothing by `read`."""

    def __init__(self, noun: str) -> None:
        self._noun = noun

    def __call__(
        self,
        name: str,
        text: str,
        *,
        takes: Mapping[str, str] | None = None,
        ends: str = "",
        permission: Permission | None = None,
        routes: str = "",
        command: str = "",
        is_for_keys: bool = True,
    ) -> Verb:
        """`routes` are parted by commas, the words of `command` by spaces."""
        return Verb(
            noun=self._noun,
            name=name,
            text=text,
            takes=takes or {},
            ends=ends,
            permission=permission,
            routes=tuple(each.strip() for each in routes.split(",") if each),
            command=tuple(command.split()),
            is_for_keys=is_for_keys,
        )

    def read(
        self, name: str, text: str, *, command: str, takes: Mapping[str, str] | None = None
    ) -> Verb:
        return replace(self(name, text, takes=takes, command=command), is_read=True)
