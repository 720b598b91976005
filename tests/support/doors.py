"""What doors may not do: write a record that has verbs. Told by reading the doors, and by looking
who made each statement that the suite runs."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.support.places import ROOT

# By the table of each.
GUARDED: Final = {
    "tenants_apikey": "ApiKey",
    "tenants_membership": "Membership",
    "tenants_project": "Project",
    "tenants_quota": "Quota",
    "tenants_tenant": "Tenant",
}
_DOORS: Final = (
    "platform/control_plane",
    "platform/command_line",
    "inference/openai_api",
    "inference/websocket_api",
    "inference/admin",
    "tenants/admin",
    "tenants/billing/admin",
)
# They make what a demo or a benchmark begins with, before anybody is there for whom a rule holds.
_BEGIN: Final = ("platform/control_plane/demo/tenants.py",)
# What writes for whoever asked for it: below all code, and models' own ways to be stored. Their
# other methods, as `Tenant.suspend`, are verbs.
_GROUND: Final = ("tenants/isolation", "tenants/audit")
_MODELS: Final = "tenants/models"
_STORED_BY: Final = ("save", "delete")
_WRITE: Final = re.compile(r'\s*(?:INSERT INTO|UPDATE|DELETE FROM)\s+"(\w+)"')


class WrittenByADoor(AssertionError):
    pass


def doors() -> list[Path]:
    """Return the files of all doors: API, pages, admin and commands."""
    rooms = [ROOT / door for door in _DOORS]
    rooms += [path.parent for path in ROOT.glob("*/management/__init__.py")]
    rooms += [path.parent for path in ROOT.glob("*/*/management/__init__.py")]
    found = {path for room in rooms for path in room.rglob("*.py")}
    return sorted(path for path in found if str(path.relative_to(ROOT)) not in _BEGIN)


def no_door_writes(
    execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any
) -> Any:
    """Run a statement for Django. Raises `WrittenByADoor` where it writes one of the guarded tables
    and the code of ours that is nearest to it is a door's."""
    found = _WRITE.match(sql) if isinstance(sql, str) else None
    if found and found[1] in GUARDED and (door := _door_of(sys._getframe(1))):
        raise WrittenByADoor(
            f"{door} writes {GUARDED[found[1]]} itself, past the rules of its verbs: call one."
        )
    return execute(sql, params, many, context)


def _door_of(frame: FrameType | None) -> str:
    """Return the line of ours that is nearest in the stack if it is a door's, else nothing."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(str(ROOT)) and "site-packages" not in path:
            place = str(Path(path).relative_to(ROOT))
            is_stored = place.startswith(_MODELS) and frame.f_code.co_name in _STORED_BY
            if not is_stored and not place.startswith(_GROUND):
                is_door = place.startswith(_DOORS) or "/management/" in place
                return f"{place}:{frame.f_lineno}" if is_door and place not in _BEGIN else ""
        frame = frame.f_back
    return ""
