"""Ends the worker's child processes with it, whatever ends it.

vLLM starts an EngineCore process, which starts Workers; without help they survive a `kill -9` of
their parent, with the GPU's memory. multiprocessing's "spawn" imports the parent's main module in
each child as `__mp_main__`, but skips a package's `__main__`; `adopt_children` therefore names
this module in its place, and grandchildren inherit that.

The kernel sends the signal when the *thread* that started the child ends, so whoever starts an
engine must keep that thread (see `VllmEngine`).
"""

import ctypes
import gc
import importlib.util
import os
import signal
import sys
from typing import Final

PARENT_VARIABLE: Final = "PENSTOCK_PARENT_PID"
PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
# A child imports what its parent did: by Python's own thresholds, a quarter of that time is spent
# on looking for garbage. So it is looked for more rarely, during steps too.
GC_THRESHOLDS: Final = (50_000, 20, 20)


def adopt_children() -> None:
    """Make child processes die with their parent; call in the parent before it starts any."""
    if sys.platform == "linux":
        os.environ[PARENT_VARIABLE] = str(os.getpid())
        sys.modules["__main__"].__spec__ = importlib.util.find_spec(__name__)


def die_with_parent() -> None:
    """Ask the kernel to kill this child when its parent ends; call it first thing in the child.

    The child also leaves the parent's process group, so that a SIGTERM to the group drains the
    worker instead of ending its engine under it. Raises `OSError` if the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if str(os.getppid()) != os.environ.get(PARENT_VARIABLE):
        os._exit(1)  # the parent ended before this call
    os.environ[PARENT_VARIABLE] = str(os.getpid())
    os.setpgid(0, 0)


if __name__ == "__mp_main__":
    # A re-import under the real name must not run this twice: __name__ differs there.
    die_with_parent()
    gc.set_threshold(*GC_THRESHOLDS)
