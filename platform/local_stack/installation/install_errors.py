"""One sentence in place of the long output of uv, pip or the disk. Standard library only."""

import errno
import re
from enum import StrEnum
from pathlib import Path


class InstallProblem(StrEnum):
    """Why an environment cannot be made."""

    UNKNOWN_ENGINE = "unknown_engine"
    DISK_FULL = "disk_full"
    FILE_NOT_WRITABLE = "file_not_writable"
    LIBRARY_MISSING = "library_missing"
    PYTHON_MISSING = "python_missing"
    PIP_MISSING = "pip_missing"
    BEING_INSTALLED = "being_installed"
    NOT_MADE = "not_made"
    HASH_MISMATCH = "hash_mismatch"
    CERTIFICATE_NOT_TRUSTED = "certificate_not_trusted"
    INDEX_UNREACHABLE = "index_unreachable"
    TORCH_PAGE_UNREADABLE = "torch_page_unreadable"
    PACKAGE_UNKNOWN = "package_unknown"
    BUILD_MISSING = "build_missing"
    CPU_TORCH_MISSING = "cpu_torch_missing"
    OTHER = "other"


class InstallError(Exception):
    """An environment cannot be made; the message is one sentence that says why, and what to do."""

    def __init__(self, problem: InstallProblem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


def explain(output: str, log: Path) -> InstallError:
    """Return what went wrong and how to fix it, from uv's or pip's whole output in `log`."""
    details = f"details are in {log}"
    if re.search(r"No space left on device|Disk quota exceeded", output):
        return InstallError(
            InstallProblem.DISK_FULL,
            f"The disk became full while installing: free some space, run it again; {details}.",
        )
    if re.search(r"DO NOT MATCH THE HASHES|Hash mismatch", output):
        return InstallError(
            InstallProblem.HASH_MISMATCH,
            "A downloaded package is not the one in the lock file: if you use a package mirror, "
            f"check it, else run it again; {details}.",
        )
    if re.search(r"invalid peer certificate|CERTIFICATE_VERIFY_FAILED", output):
        return InstallError(
            InstallProblem.CERTIFICATE_NOT_TRUSTED,
            "The package index has a certificate that is not trusted here: name your authority's "
            f"with pip's setting `cert`, or set UV_SYSTEM_CERTS=1, and run it again; {details}.",
        )
    if "Failed to read `--find-links` URL" in output:
        return InstallError(
            InstallProblem.TORCH_PAGE_UNREADABLE,
            "The page of torch's CPU builds cannot be read: check the network, or set "
            f"PENSTOCK_TORCH_CPU_INDEX to an index that has them, and run it again; {details}.",
        )
    if re.search(_UNREACHABLE, output):
        return InstallError(
            InstallProblem.INDEX_UNREACHABLE,
            "The package index cannot be reached: check the network, or pip's proxy and index "
            f"settings, and run it again; {details}.",
        )
    unknown = re.search(r"not found in the package registry and you require ([^\s,]+)", output)
    if unknown and not has_no_cpu_torch(output):
        return InstallError(
            InstallProblem.PACKAGE_UNKNOWN,
            f"No package index knows {unknown.group(1)}: check pip's index settings, and whether "
            f"they need a user and a password; {details}.",
        )
    missing = re.search(_MISSING, output)
    package = next((name for name in missing.groups() if name), "") if missing else ""
    if package.startswith("torch==") and "+cpu" in package:
        return InstallError(
            InstallProblem.CPU_TORCH_MISSING,
            f"No package index has {package}: set PENSTOCK_TORCH_CPU_INDEX to one that has, or "
            f"pip's find-links to a folder with the wheel; {details}.",
        )
    if package:
        return InstallError(
            InstallProblem.BUILD_MISSING,
            f"No package index has a build of {package} for this machine: Penstock's locks are "
            f"for Linux on x86-64 with glibc 2.28 or newer; {details}.",
        )
    said = [line for line in output.splitlines() if re.search("rror|cause:", line)]
    said = said or output.splitlines()
    reason = said[-1].strip() if said else "no reason given"
    return InstallError(InstallProblem.OTHER, f"The install failed ({reason}); {details}.")


def has_no_cpu_torch(output: str) -> bool:
    """Return whether uv found no CPU build of torch in the indexes it was given."""
    return re.search(r"no version of torch==\S+\+cpu|torch was not found in", output) is not None


def explain_os_error(error: OSError, root: Path) -> InstallError:
    """Return what went wrong and how to fix it, for a file that could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return InstallError(
            InstallProblem.DISK_FULL,
            f"The disk of {root} is full: free some space and run it again.",
        )
    if isinstance(error, PermissionError):
        return InstallError(
            InstallProblem.FILE_NOT_WRITABLE,
            f"{error.filename} cannot be written, it belongs to another user: "
            "run as that user, or remove it.",
        )
    return InstallError(InstallProblem.OTHER, f"The environments cannot be made: {error}.")


_UNREACHABLE = (
    r"Retrying \(Retry|NewConnectionError|Max retries exceeded|timed out"
    r"|error sending request|Request failed after|Failed to fetch"
)
_MISSING = (
    r"No matching distribution found for (\S+)"
    r"|there is no version of (\S+) and"
    r"|Because (\S+) has no wheels with"
    r"|torch was not found in the package registry and you require ([^\s,]+)"
)
