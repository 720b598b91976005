"""The verbs of operators: each runs a command of `manage.py` in this process, with the settings of
the installation or, in a checkout without any, of the stack that `make up` has started."""

import logging
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tenants import verbs

ROOT: Final = Path(__file__).resolve().parents[2]


def by_noun() -> dict[str, dict[str, verbs.Verb]]:
    """Return the verbs of operators, by noun and name; those without a noun under none."""
    found: defaultdict[str, dict[str, verbs.Verb]] = defaultdict(dict)
    for verb in verbs.VERBS:
        if verb.command:
            found[verb.noun][verb.name] = verb
    return dict(found)


def run(words: Sequence[str], arguments: Sequence[str], *, called: str) -> None:
    """Run the command that the words begin; `called` is what its help calls it. Ends the process
    with a status where it fails."""
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

        django.setup()
        # What went wrong the command says, in a line.
        logging.disable(logging.CRITICAL)
        name, *first = words
        command = load_command_class(get_commands()[name], name)
        program, _, last = called.rpartition(" ")
        command.run_from_argv([program, last, *first, *arguments])
