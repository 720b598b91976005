"""The verbs of operators: each runs a command of `manage.py` in this process, with the settings of
the installation or, in a checkout without any, of the stack that `make up` has started."""

import argparse
import gc
import logging
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from command_line.failures import Misused, Refused, Unreachable
from tenants import verbs
from tenants.management import UNREACHABLE

# What every command takes, and no operator needs: left out of helps.
_OF_DJANGO: Final = {
    "--version", "--verbosity", "--settings", "--pythonpath", "--traceback", "--no-color",
    "--force-color",
}  # fmt: skip
ROOT: Final = Path(__file__).resolve().parents[2]


def by_noun() -> dict[str, dict[str, verbs.Verb]]:
    """Return the verbs of operators, by noun and name; those without a noun under none."""
    found: defaultdict[str, dict[str, verbs.Verb]] = defaultdict(dict)
    for verb in verbs.VERBS:
        if verb.command:
            found[verb.noun][verb.name] = verb
    return dict(found)


def run(verb: verbs.Verb, arguments: Sequence[str], *, called: str) -> None:
    """Run the command of a verb; `called` is what its help calls it. Ends the process with a status
    where it fails."""
    # What a verb takes can be read where no installation is.
    is_help = bool({"-h", "--help"} & set(arguments))
    settings = "control_plane.settings_for_checks" if is_help else "control_plane.settings"
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", settings)
    from local_stack.stack_env import local_stack

    with local_stack(ROOT, is_told=False):
        from control_plane.database_roles import work_in_background
        from control_plane.process_limits import forbid_core_dumps

        forbid_core_dumps()
        work_in_background()
        import django
        from django.core.management import get_commands, load_command_class
        from django.core.management.base import CommandError
        from django.db import connections

        # What Django imports is no garbage: to look for some takes a sixth of the start.
        gc.disable()
        django.setup()
        gc.freeze()
        gc.enable()
        # What went wrong the command says, in a line.
        logging.disable(logging.CRITICAL)
        name, *first = verb.command
        command = load_command_class(get_commands()[name], name)
        # Checks of the system read every page, which takes longer than the command.
        command.requires_system_checks = []
        command.suppressed_base_arguments = _OF_DJANGO
        command.help = verb.told
        program, _, last = called.rpartition(" ")
        parser = command.create_parser(program, last)
        if first:  # what its other verbs take is nothing to this one
            for action in parser._actions:
                if action.dest not in ("help", "json"):
                    action.help = verb.takes.get(action.dest, argparse.SUPPRESS)
        try:
            options = vars(parser.parse_args([*first, *arguments]))
        except CommandError as misuse:
            _end(Misused(f"{str(misuse).removeprefix('Error: ')}. See {called} --help."))
        try:
            command.execute(*options.pop("args", ()), **options)
        except CommandError as refusal:
            unreachable = refusal.returncode == UNREACHABLE
            _end(Unreachable(str(refusal)) if unreachable else Refused(str(refusal)))
        finally:
            connections.close_all()


def _end(failure: Refused) -> NoReturn:
    """End the process. What is raised would be put down to a server of the stack that is down."""
    failure.show()
    sys.exit(failure.exit_code)
