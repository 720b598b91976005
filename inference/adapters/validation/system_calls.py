"""Lets this process call the kernel for a few things only (seccomp's filter mode).

Whatever a broken parser would try, it can read and write what is open, allocate memory and end: it
opens no file, makes no socket and no process, and reaches little of the kernel's own surface. It
is the one guard against the network that a container without user namespaces allows too.
"""

import ctypes
import os
import platform
from collections.abc import Mapping
from typing import Final

# linux/prctl.h, linux/seccomp.h, linux/filter.h, linux/audit.h
_PR_SET_SECCOMP: Final = 22
_SECCOMP_MODE_FILTER: Final = 2
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | 1  # the call returns EPERM
_KILL: Final = 0x80000000
_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_IF_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K
_NUMBER_AT: Final = 0  # struct seccomp_data
_ARCHITECTURE_AT: Final = 4

_AUDIT_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Name -> number on each; asm/unistd_64.h and asm-generic/unistd.h. x32's numbers have a bit more
# than any of these, and so are refused.
_NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    "read": (0, 63),
    "write": (1, 64),
    "writev": (20, 66),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "lseek": (8, 62),
    "close": (3, 57),
    "ftruncate": (77, 46),
    "mmap": (9, 222),
    "munmap": (11, 215),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "brk": (12, 214),
    "futex": (202, 98),
    "sched_yield": (24, 124),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "getrandom": (318, 278),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "exit": (60, 93),
    "exit_group": (231, 94),
}


class _Instruction(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("operand", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction))]


def allow_few_system_calls() -> None:
    """Refuse all other calls from now on, with EPERM. Needs no_new_privs. Raises OSError where the
    kernel has no filters, or this is an architecture whose numbers are not known."""
    architecture = platform.machine()
    if architecture not in _AUDIT_ARCHITECTURES:
        raise OSError(f"the system calls of {architecture} are not known")
    column = list(_AUDIT_ARCHITECTURES).index(architecture)
    numbers = [of[column] for of in _NUMBERS.values()]
    instructions = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_IF_EQUAL, 1, 0, _AUDIT_ARCHITECTURES[architecture]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        # Each jumps over those behind it and over the refusal.
        *(
            (_JUMP_IF_EQUAL, len(numbers) - place, 0, number)
            for place, number in enumerate(numbers)
        ),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    filters = (_Instruction * len(instructions))(
        *(_Instruction(*fields) for fields in instructions)
    )
    program = _Program(len(instructions), filters)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
