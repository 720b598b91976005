"""What a change to a tenant's records can be refused for, one family. What is wrong with a value
itself is Django's `ValidationError`."""


class TenantsError(Exception):
    """Base; `param` names the field that was at fault, where one was."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class NotPermitted(TenantsError):
    """Whoever asked is known, and may not do this."""


class Conflict(TenantsError):
    """It cannot be, given what is there already."""
