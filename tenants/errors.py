"""What a change to a tenant's records can be refused for, one family. What is wrong with a value
itself is Django's `ValidationError`."""

from collections.abc import Mapping
from typing import Any


class TenantsError(Exception):
    """Base. `code` names the rule that refuses, for programs, as Django's `ValidationError` does;
    `param` names the field that was at fault, where one was; `params` are the facts that the
    message tells. Doors tell message, `param` and code."""

    code = "refused"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Without a `code` the class says its own."""
        super().__init__(message)
        self.message = message
        self.code = code or self.code
        self.param = param
        self.params = params or {}


class NotPermitted(TenantsError):
    """Whoever asked is known, and may not do this."""

    code = "not_permitted"


class Conflict(TenantsError):
    """It cannot be, given what is there already."""

    code = "conflict"
