"""What a change to adapters is refused for."""

from tenants.errors import Conflict


class AdapterConflict(Conflict):
    """It cannot be, given the adapters that are there already. Doors tell its code."""

    code = "conflict"
