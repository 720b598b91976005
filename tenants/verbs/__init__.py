"""The one table of verbs: what can be done, by whom, and what it ends. The command line, the texts
of the admin and docs/permissions.md are made from it; the management API is held to it.

Without Django, which `penstock` does not start for most of what it does.
"""

from collections.abc import Iterable
from typing import Final

from tenants.verbs.money import MONEY
from tenants.verbs.noun import Verb
from tenants.verbs.organisation import ORGANISATION
from tenants.verbs.service import SERVICE

__all__ = ["VERBS", "Verb", "of_command", "verb"]

VERBS: Final[tuple[Verb, ...]] = (*ORGANISATION, *MONEY, *SERVICE)
_BY_NAME: Final = {str(verb): verb for verb in VERBS}


def verb(name: str) -> Verb:
    """Return the verb of a noun, such as `keys revoke`. Raises `KeyError` where there is none."""
    return _BY_NAME[name]


def of_command(command: str) -> Iterable[Verb]:
    """Return what a command of manage.py does: one verb, or one for each action that it takes."""
    return (each for each in VERBS if each.command[:1] == (command,))
