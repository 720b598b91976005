"""One sentence for what pip, or the disk, said at length. Standard library only: see bootstrap."""

import errno
import re
from pathlib import Path

DETAILS = "details are in var/log/install.log"


def explain_pip(output: str) -> str:
    """What went wrong and how to mend it, from pip's whole output."""
    if "No space left on device" in output or "Disk quota exceeded" in output:
        return f"The disk became full while installing: free some space, run it again; {DETAILS}."
    if "DO NOT MATCH THE HASHES" in output:
        return (
            "A downloaded package is not the one in the lock file: if you use a package mirror, "
            f"check it, else run it again; {DETAILS}."
        )
    if re.search(r"Retrying \(Retry|NewConnectionError|Max retries exceeded|timed out", output):
        return (
            "The package index cannot be reached: check the network, or pip's proxy and index "
            f"settings, and run it again; {DETAILS}."
        )
    missing = re.search(r"No matching distribution found for (\S+)", output)
    if missing and missing.group(1).startswith("torch=="):
        return (
            f"pip found no build of {missing.group(1)}: set PENSTOCK_TORCH_CPU_INDEX to an index "
            f"that has it, or pip's find-links to a folder with the wheel; {DETAILS}."
        )
    if missing:
        return (
            f"pip found no build of {missing.group(1)} for this machine: Penstock's locks are for "
            f"Linux on x86-64 with glibc 2.28 or newer; {DETAILS}."
        )
    said = [line for line in output.splitlines() if "rror" in line] or output.splitlines()
    return f"The install failed ({said[-1].strip() if said else 'no reason given'}); {DETAILS}."


def explain_os_error(error: OSError, root: Path) -> str:
    """The same for a file that could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"The disk of {root} is full: free some space and run it again."
    if isinstance(error, PermissionError):
        return (
            f"{error.filename} may not be written, it belongs to another user: "
            "run as that user, or remove it."
        )
    return f"The environments cannot be made: {error}."
