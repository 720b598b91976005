"""Reading hashed requirement files. Standard library only: see bootstrap."""

import re


def packages(lock: str) -> set[str]:
    """The normal names of the packages that a lock file pins."""
    return {normal(name) for name in re.findall(r"(?m)^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==", lock)}


def excerpt(lock: str, package: str) -> str:
    """The lines of one package, hashes included; raises `LookupError` if it is not pinned."""
    found = re.search(rf"(?m)^{re.escape(package)}==[^\n]*(?:\n[ \t]+[^\n]*)*", lock)
    if found is None:
        raise LookupError(f"the lock file does not pin {package}")
    return found.group() + "\n"


def normal(name: str) -> str:
    """PyPA's normal form of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()
