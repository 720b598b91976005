#!/usr/bin/env python
"""Django's command line for Penstock."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def main() -> None:
    sys.path[:0] = [str(ROOT), str(ROOT / "platform")]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
    from control_plane.database_roles import work_in_background
    from control_plane.process_limits import forbid_core_dumps
    from django.core.management import execute_from_command_line
    from local_stack.stack_env import local_stack

    forbid_core_dumps()
    work_in_background()
    with local_stack(ROOT):
        execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
