"""Shuts this process in: what it may still do is compute, and read and write what is open.

A validator enters before it reads one byte of an upload. Each guard is put up by itself, so that a
kernel, a container or a policy that refuses one leaves the others.
"""

import ctypes
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from inference.adapters.validation.system_calls import allow_few_system_calls
from inference.adapters.validation.verdicts import Bounds, Guard

_libc: Final = ctypes.CDLL(None, use_errno=True)

# linux/prctl.h
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38
# linux/sched.h
_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWUTS: Final = 0x04000000
_CLONE_NEWIPC: Final = 0x08000000
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
# linux/mount.h
_MS_READ_ONLY: Final = 1
_MS_NO_SUID: Final = 2
_MS_NO_DEVICES: Final = 4
_MS_NO_EXEC: Final = 8
_MS_RECURSIVE: Final = 16384
_MS_PRIVATE: Final = 1 << 18
_MNT_DETACH: Final = 2
# linux/landlock.h; the numbers of its calls are the same on every architecture.
_LANDLOCK_CREATE_RULESET: Final = 444
_LANDLOCK_RESTRICT_SELF: Final = 446
_LANDLOCK_VERSION: Final = 1
_LANDLOCK_FIRST_FILE_RIGHTS: Final = 0x1FFF
_LANDLOCK_ALL_NET: Final = 0b11  # bind and connect of TCP, from version 4 on
_LANDLOCK_ALL_SCOPES: Final = 0b11  # abstract sockets and signals, from version 6 on
_CAPABILITIES_VERSION_3: Final = 0x20080522

_NOBODY: Final = 65534
_MOST_DESCRIPTORS: Final = 32


def enter_jail(bounds: Bounds, *, written_bytes: int) -> list[Guard]:
    """Put up every guard that this kernel allows, and return which hold. `written_bytes` bounds
    each file that is written. Raises OSError where one fails that works on every Linux: limits,
    no new privileges."""
    guards = [
        guard
        for guard, put_up in (
            (Guard.OWN_USER, become_nobody),
            (Guard.NAMESPACES, leave_namespaces),
            (Guard.EMPTY_ROOT, empty_root),
        )
        if _holds(put_up)
    ]
    die_with_parent()
    _holds(drop_capabilities)
    forbid_new_privileges()
    guards.append(Guard.NO_NEW_PRIVILEGES)
    if _holds(allow_no_path):
        guards.append(Guard.LANDLOCK)
    set_limits(bounds, written_bytes)
    guards.append(Guard.LIMITS)
    _prctl(_PR_SET_DUMPABLE, 0)
    if _holds(allow_few_system_calls):
        guards.append(Guard.SYSTEM_CALLS)
    return guards


def _holds(put_up: Callable[[], None]) -> bool:
    try:
        put_up()
    except (OSError, AttributeError):  # AttributeError: a C library without the function
        return False
    return True


def die_with_parent() -> None:
    """Have the kernel end this process when the one that started it is gone. Forgotten when the
    user changes."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def become_nobody() -> None:
    """Give up root's identity. Raises PermissionError where this process has another."""
    if os.geteuid() != 0:
        raise PermissionError("only root can become another user")
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    # The kernel gives the files in /proc/self to root once the user has changed, and they are
    # needed to enter a user namespace.
    _prctl(_PR_SET_DUMPABLE, 1)


def leave_namespaces() -> None:
    """Enter namespaces of this process's own: without a network, with nobody's rights outside."""
    user, group = os.geteuid(), os.getegid()
    _checked(
        _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWNS | _CLONE_NEWIPC | _CLONE_NEWUTS)
    )
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def empty_root() -> None:
    """Put an empty, read-only file system in the place of all others (pivot_root(2), "pivot_root
    with the same path twice"). Only within a mount namespace of one's own."""
    _mount(None, "/", None, _MS_RECURSIVE | _MS_PRIVATE, None)
    flags = _MS_READ_ONLY | _MS_NO_SUID | _MS_NO_DEVICES | _MS_NO_EXEC
    _mount("none", "/tmp", "tmpfs", flags, "size=4k,nr_inodes=2,mode=555")  # noqa: S108
    os.chdir("/tmp")  # noqa: S108 - any folder that is on every Linux will do
    _checked(_libc.pivot_root(b".", b"."))
    _checked(_libc.umount2(b".", _MNT_DETACH))
    os.chdir("/")


def drop_capabilities() -> None:
    """Give up all capabilities, those of an own user namespace too."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION_3, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()))


def forbid_new_privileges() -> None:
    """Have no program that is started from here gain rights by its owner's bits."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def allow_no_path() -> None:
    """Have Landlock refuse every path, TCP, abstract sockets and signals to others, as far as the
    kernel's version of it goes. Needs no_new_privs."""
    version = _syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION)
    rights = _LANDLOCK_FIRST_FILE_RIGHTS
    for right, since in ((1 << 13, 2), (1 << 14, 3), (1 << 15, 5)):  # refer, truncate, ioctl
        rights |= right if version >= since else 0
    fields = [rights]
    if version >= 4:
        fields.append(_LANDLOCK_ALL_NET)
    if version >= 6:
        fields.append(_LANDLOCK_ALL_SCOPES)
    attributes = (ctypes.c_uint64 * len(fields))(*fields)
    ruleset = _syscall(_LANDLOCK_CREATE_RULESET, attributes, ctypes.sizeof(attributes), 0)
    try:
        _syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def set_limits(bounds: Bounds, written_bytes: int) -> None:
    """Set what this process may take: address space, CPU, bytes of a file, descriptors, and no
    process beside it (which the kernel does not count for root)."""
    limits = (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_AS, bounds.memory_bytes, bounds.memory_bytes),
        # The soft one is a SIGXCPU, by which it is told apart from other deaths.
        (resource.RLIMIT_CPU, bounds.cpu_seconds, bounds.cpu_seconds + 1),
        (resource.RLIMIT_FSIZE, written_bytes, written_bytes),
        (resource.RLIMIT_NOFILE, _MOST_DESCRIPTORS, _MOST_DESCRIPTORS),
        (resource.RLIMIT_NPROC, 0, 0),
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_MSGQUEUE, 0, 0),
    )
    for limit, soft, hard in limits:
        _, most = resource.getrlimit(limit)
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(limit, (soft, hard))


def _syscall(number: int, *arguments: ctypes.Array[ctypes.c_uint64] | int | None) -> int:
    """Call the kernel by number; integers are passed as wide as its registers."""
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *wide))


def _prctl(option: int, argument: int) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(argument), *[ctypes.c_ulong(0)] * 3))


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None) -> None:
    encoded = [text.encode() if text is not None else None for text in (source, target, kind)]
    options = data.encode() if data is not None else None
    _checked(_libc.mount(*encoded, ctypes.c_ulong(flags), options))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
