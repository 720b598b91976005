"""pip's settings for package indexes, passed on to uv, which does not read them.

Standard library only.
"""

import ast
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# Later ones override earlier ones, as in pip.
_SECTIONS = ("global", "install", ":env:")


def read(pip: Sequence[str]) -> dict[str, str]:
    """Return pip's settings by option name, from its files and PIP_ variables.

    `pip` is the command that runs it. Raises `OSError` or `CalledProcessError` if it cannot be
    run.
    """
    listing = subprocess.run(
        [*pip, "--disable-pip-version-check", "config", "list"],
        capture_output=True,
        text=True,
        check=True,
    )
    by_section: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in listing.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if section in by_section:
            by_section[section][option] = str(ast.literal_eval(value))
    return {name: text for part in by_section.values() for name, text in part.items()}


def as_uv_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that tell uv the same.

    Variables rather than options, since an index's address may hold a password.
    """
    timeout = settings.get("timeout") or settings.get("default-timeout", "")
    links = [link for link in settings.get("find-links", "").split() if _is_there(link)]
    proxy = settings.get("proxy", "")
    variables = {
        "UV_DEFAULT_INDEX": settings.get("index-url", ""),
        "UV_INDEX": " ".join(settings.get("extra-index-url", "").split()),
        "UV_FIND_LINKS": ",".join(links),
        "UV_INSECURE_HOST": " ".join(settings.get("trusted-host", "").split()),
        "UV_HTTP_TIMEOUT": timeout.partition(".")[0],
        "SSL_CERT_FILE": settings.get("cert", ""),
        "HTTP_PROXY": proxy,
        "HTTPS_PROXY": proxy,
        # pip takes a version from any index that has it; the lock's hashes say which file is meant.
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    return {name: value for name, value in variables.items() if value}


def as_uv_options(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options for what uv has no variable for."""
    is_without_index = settings.get("no-index", "").lower() in ("1", "true", "yes", "on", "t", "y")
    return ("--no-index",) if is_without_index else ()


def _is_there(link: str) -> bool:
    """Return whether uv accepts a link: where pip skips a missing folder, uv stops."""
    return "://" in link or Path(link).expanduser().exists()
