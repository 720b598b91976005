"""Writes the pictures to var/screenshots and fails on what no page may do: scroll sideways, report
an error to the console or to its policy, ask another host, be hard to use by axe's rules.

    python -m tests.screenshots            # all pages
    python -m tests.screenshots projects   # those whose name begins so
    python -m tests.screenshots --small    # in one width and scheme

It has servers of its own, so that it runs beside `make up`.
"""

import os
import shutil
import sys
from pathlib import Path

from tests.support.chromium.launching import FLAGS
from tests.support.chromium.serving import serving
from tests.support.places import LOOPBACK, ROOT, free_port
from tests.support.servers import servers  # before Django's settings: it sets what they read

FOLDER = ROOT / "var" / "screenshots"
WIDTHS = {1440: 900, 768: 1024, 360: 740}
SCHEMES = ("light", "dark")
_SMALL = "--small"


def main(prefixes: list[str], *, is_small: bool = False) -> int:
    """Take the pictures; return how many pages had a problem."""
    widths = {1440: WIDTHS[1440]} if is_small else WIDTHS
    schemes = SCHEMES[:1] if is_small else SCHEMES
    port = free_port()
    os.environ["DJANGO_SETTINGS_MODULE"] = "control_plane.settings"
    # A name, as an address can have no passkeys.
    os.environ["PENSTOCK_PUBLIC_URL"] = f"http://localhost:{port}"
    os.environ["PENSTOCK_ALLOWED_ORIGINS"] = f"http://localhost:{port},http://{LOOPBACK}:{port}"
    servers().start_postgres()

    import django

    django.setup()
    from django.core.management import call_command

    from tests.screenshots.cast import make_cast
    from tests.screenshots.pages import shots
    from tests.screenshots.playground import workers
    from tests.screenshots.taking import take

    call_command("migrate", verbosity=0)
    wanted = [
        shot for shot in shots(make_cast()) if not prefixes or shot.name.startswith(tuple(prefixes))
    ]
    if not wanted:
        sys.exit(f"No page's name begins with {' or '.join(prefixes)}.")
    if not prefixes:
        shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    # All doors, as the playground's page asks the gateway.
    from control_plane.asgi import application

    with serving(application, port, lifespan="on") as url, workers():
        problems = take(wanted, url, folder=FOLDER, widths=widths, schemes=schemes, flags=FLAGS)
    for problem in problems:
        print(problem, file=sys.stderr)  # noqa: T201
    print(f"{len(list(Path(FOLDER).glob('*.png')))} pictures in {FOLDER}")  # noqa: T201
    return len(problems)


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if name != _SMALL]
    sys.exit(min(main(names, is_small=_SMALL in sys.argv), 1))
