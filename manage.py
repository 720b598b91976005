#!/usr/bin/env python
"""Django's command line for Penstock."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def main() -> None:
    sys.path[:0] = [str(ROOT), str(ROOT / "platform")]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
    from django.core.management import execute_from_command_line
    from local_stack.stack_env import local_stack

    with local_stack(ROOT):
        execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
