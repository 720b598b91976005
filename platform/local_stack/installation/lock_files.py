"""Reading hashed requirement files. Standard library only: see bootstrap."""

import re


def excerpt(lock: str, package: str) -> str:
    """Return a package's lines, hashes included. Raises `LookupError` if it is not pinned."""
    found = re.search(rf"(?m)^{re.escape(package)}==[^\n]*(?:\n[ \t]+[^\n]*)*", lock)
    if found is None:
        raise LookupError(f"the lock file does not pin {package}")
    return found.group() + "\n"
