"""What a child could do that a hostile upload had taken over: payloads that try, in its jail."""

import errno
import os
import signal
import socket
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from inference.adapters.validation.jailer import Ending, Outcome, run_program
from inference.adapters.validation.verdicts import Bounds, Guard
from tests.support.places import ROOT

BOUNDS = Bounds(cpu_seconds=2)
WRITTEN_BYTES = 1024 * 1024

PROLOGUE = f"""
import ctypes, errno, os, resource, signal, socket, sys, threading, time
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from inference.adapters.validation import jail
from inference.adapters.validation.system_calls import allow_few_system_calls
from inference.adapters.validation.verdicts import Bounds
words = sys.stdin.read().split()
libc = ctypes.CDLL(None, use_errno=True)

def say(*things):
    os.write(1, (" ".join(str(thing) for thing in things) + "\\n").encode())

def attempt(what):
    try:
        what()
    except OSError as error:
        say(errno.errorcode.get(error.errno, error.errno))
    except BaseException as error:
        say(type(error).__name__)
    else:
        say("escaped")
"""
WHOLE_JAIL = f"""
guards = jail.enter_jail(Bounds(cpu_seconds=2), written_bytes={WRITTEN_BYTES})
say(*guards)
"""


def run_payload(
    folder: Path,
    payload: str,
    *words: object,
    descriptors: tuple[int, ...] = (),
    seconds: float = 20,
) -> Outcome:
    program = folder / "payload.py"
    program.write_text(PROLOGUE + textwrap.dedent(payload) + "\nos._exit(0)\n")
    given = " ".join(str(word) for word in words).encode()
    return run_program(program, given=given, descriptors=descriptors, wall_seconds=seconds)


def said(outcome: Outcome) -> list[str]:
    assert outcome.ending is Ending.EXITED, outcome
    assert outcome.status == 0, outcome
    return outcome.answer.decode().splitlines()


def jailed(folder: Path, payload: str, *words: object, descriptors: tuple[int, ...] = ()) -> str:
    """What a payload in the whole jail said last."""
    return said(
        run_payload(folder, WHOLE_JAIL + textwrap.dedent(payload), *words, descriptors=descriptors)
    )[-1]


@contextmanager
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_the_jail_holds_by_all_guards_that_this_kernel_has(tmp_path: Path) -> None:
    (first,) = said(run_payload(tmp_path, WHOLE_JAIL))
    assert set(first.split()) >= {Guard.LIMITS, Guard.NO_NEW_PRIVILEGES, Guard.SYSTEM_CALLS}
    assert (Guard.OWN_USER in first.split()) == (os.geteuid() == 0)


REFUSED = {
    "reading a file": "os.open('/etc/passwd', os.O_RDONLY)",
    "reading our code": f"os.open({str(ROOT / 'manage.py')!r}, os.O_RDONLY)",
    "reading its own process": "os.open('/proc/self/environ', os.O_RDONLY)",
    "listing a folder": "os.listdir('/')",
    "writing a file": "os.open('/tmp/escaped', os.O_WRONLY | os.O_CREAT)",
    "making a folder": "os.mkdir('/tmp/escaped')",
    "TCP": "socket.socket(socket.AF_INET, socket.SOCK_STREAM)",
    "UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "IPv6": "socket.socket(socket.AF_INET6, socket.SOCK_STREAM)",
    "a Unix socket": "socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)",
    "a pair of sockets": "socket.socketpair()",
    "a pipe": "os.pipe()",
    "a fork": "os.fork()",
    "a program": "os.execv('/bin/true', ['true'])",
    "a signal to its parent": "os.kill(int(words[0]), 0)",
    "signals to everybody": "os.kill(-1, signal.SIGTERM)",
    "a new root": "os.chroot('/')",
    "another user": "os.setuid(0)",
    "other priorities": "os.nice(-5)",
}


def test_it_may_do_nothing_but_compute_and_read_and_write_what_is_open(tmp_path: Path) -> None:
    payload = "\n".join(f"attempt(lambda: {what})" for what in REFUSED.values())
    lines = said(run_payload(tmp_path, WHOLE_JAIL + payload, os.getpid()))[1:]
    assert dict(zip(REFUSED, lines, strict=True)) == dict.fromkeys(REFUSED, "EPERM")


def test_calls_by_number_are_refused_too(tmp_path: Path) -> None:
    """Of x86_64: ptrace, process_vm_readv, unshare, setns, mount, bpf, io_uring_setup, userfaultfd,
    keyctl, and execveat; of others something that is not allowed either."""
    payload = """
    for call in (101, 310, 272, 308, 165, 321, 425, 323, 250, 322):
        say(libc.syscall(call, int(words[0]), 0, 0, 0, 0, 0), errno.errorcode[ctypes.get_errno()])
    """
    lines = said(run_payload(tmp_path, WHOLE_JAIL + textwrap.dedent(payload), os.getpid()))[1:]
    assert lines == ["-1 EPERM"] * 10


def test_it_has_no_thread_beside_its_own(tmp_path: Path) -> None:
    payload = "attempt(lambda: threading.Thread(target=say).start())"
    assert jailed(tmp_path, payload) == "RuntimeError"


def test_it_gets_no_memory_beyond_its_bound(tmp_path: Path) -> None:
    payload = "attempt(lambda: bytearray(600 * 2**20))"
    assert jailed(tmp_path, payload) == "MemoryError"


def test_it_gets_no_memory_beyond_its_bound_in_small_pieces(tmp_path: Path) -> None:
    payload = """
    def hoard():
        kept = []
        while True:
            kept.append(bytearray(2**20))
    attempt(hoard)
    """
    assert jailed(tmp_path, payload) == "MemoryError"


def test_it_does_not_raise_its_limits(tmp_path: Path) -> None:
    payload = "attempt(lambda: resource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40)))"
    assert jailed(tmp_path, payload) == "ValueError"


def test_it_writes_no_more_than_its_bound(tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as output:
        payload = """
        def flood():
            for _ in range(100):
                os.write(int(words[0]), bytes(2**17))
        attempt(flood)
        """
        assert jailed(tmp_path, payload, output.fileno(), descriptors=(output.fileno(),)) == "EFBIG"
    assert (tmp_path / "output").stat().st_size == WRITTEN_BYTES


def test_it_computes_no_longer_than_its_bound(tmp_path: Path) -> None:
    outcome = run_payload(tmp_path, WHOLE_JAIL + "while True: pass")
    assert outcome.ending is Ending.EXITED
    assert outcome.status == -signal.SIGXCPU
    assert outcome.seconds < 15


def test_it_waits_no_longer_than_the_clock_allows(tmp_path: Path) -> None:
    readable, writable = os.pipe()
    try:
        outcome = run_payload(
            tmp_path,
            WHOLE_JAIL + "os.read(int(words[0]), 1)",
            readable,
            descriptors=(readable,),
            seconds=1,
        )
    finally:
        os.close(readable)
        os.close(writable)
    assert outcome.ending is Ending.TOO_LONG


def test_it_says_no_more_than_an_answer_has(tmp_path: Path) -> None:
    outcome = run_payload(tmp_path, WHOLE_JAIL + "while True: say('x' * 4096)")
    assert outcome.ending is Ending.BABBLED
    assert outcome.seconds < 10


def test_it_inherits_nothing_but_what_it_is_given(tmp_path: Path) -> None:
    secret = os.open("/etc/passwd", os.O_RDONLY)
    os.set_inheritable(secret, True)
    try:
        payload = """
        def is_open(number):
            try:
                os.lseek(number, 0, os.SEEK_CUR)
            except OSError as error:
                return error.errno != errno.EBADF
            return True
        say(len(os.environ) and sorted(os.environ), [n for n in range(500) if is_open(n)])
        """
        environment, descriptors = jailed(tmp_path, payload).split("] [")
    finally:
        os.close(secret)
    assert descriptors == "0, 1, 2]"
    assert set(environment.strip("[]").replace("'", "").split(", ")) <= {
        *("LC_CTYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
    }


# Each guard alone: what holds where the others cannot be had.


def alone(folder: Path, guard: str, payload: str, *words: object) -> list[str]:
    attempt = f"""
try:
    {guard}
except OSError as error:
    say("not held", error)
    os._exit(0)
"""
    lines = said(run_payload(folder, attempt + textwrap.dedent(payload), *words))
    if lines[0].startswith("not held"):
        pytest.skip(f"this kernel does not let us: {lines[0]}")
    return lines


NAMESPACES = "os.geteuid() or jail.become_nobody(); jail.leave_namespaces()"


def test_the_namespaces_alone_have_no_network(tmp_path: Path) -> None:
    payload = "attempt(lambda: socket.socket().connect(('127.0.0.1', int(words[0]))))"
    with listener() as port:
        assert alone(tmp_path, NAMESPACES, payload, port) == ["ENETUNREACH"]


def test_the_namespaces_alone_give_no_right_outside(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secret").chmod(0o600)
    payload = "attempt(lambda: os.open(words[0], os.O_RDONLY))"
    if os.geteuid() != 0:
        pytest.skip("a user may read their own files")
    assert alone(tmp_path, NAMESPACES, payload, tmp_path / "secret") == ["EACCES"]


def test_the_empty_root_alone_has_no_file(tmp_path: Path) -> None:
    payload = """
    say(os.listdir("/"), os.getcwd())
    attempt(lambda: os.open("/etc/passwd", os.O_RDONLY))
    attempt(lambda: os.open("/escaped", os.O_WRONLY | os.O_CREAT))
    attempt(lambda: os.open("../../../../etc/passwd", os.O_RDONLY))
    """
    assert alone(tmp_path, f"{NAMESPACES}; jail.empty_root()", payload) == [
        "[] /",
        "ENOENT",
        "EROFS",
        "ENOENT",
    ]


def test_without_capabilities_it_mounts_nothing_in_its_own_namespace(tmp_path: Path) -> None:
    payload = (
        "say(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None), errno.errorcode[ctypes.get_errno()])"
    )
    assert alone(tmp_path, f"{NAMESPACES}; jail.drop_capabilities()", payload) == ["-1 EPERM"]


def test_landlock_alone_opens_no_path_and_no_connection(tmp_path: Path) -> None:
    payload = """
    attempt(lambda: os.open("/etc/passwd", os.O_RDONLY))
    attempt(lambda: os.listdir("/"))
    attempt(lambda: os.open("/tmp/escaped", os.O_WRONLY | os.O_CREAT))
    attempt(lambda: socket.socket().connect(("127.0.0.1", int(words[0]))))
    attempt(lambda: os.kill(int(words[1]), 0))
    """
    guard = "jail.forbid_new_privileges(); jail.allow_no_path()"
    with listener() as port:
        lines = alone(tmp_path, guard, payload, port, os.getpid())
    assert lines[:3] == ["EACCES", "EACCES", "EACCES"]
    # TCP since the kernel 6.7, signals since 6.12; before, other guards hold.
    assert lines[3] in ("EACCES", "escaped")
    assert lines[4] in ("EPERM", "escaped")


def test_the_filter_alone_holds_in_a_container_that_allows_nothing_else(tmp_path: Path) -> None:
    payload = """
    attempt(lambda: os.open("/etc/passwd", os.O_RDONLY))
    attempt(lambda: socket.socket())
    attempt(lambda: os.fork())
    attempt(lambda: os.kill(int(words[0]), 0))
    """
    guard = "jail.forbid_new_privileges(); allow_few_system_calls()"
    assert alone(tmp_path, guard, payload, os.getpid()) == [errno.errorcode[errno.EPERM]] * 4


def test_the_limits_alone_keep_nobody_from_forking(tmp_path: Path) -> None:
    payload = "attempt(os.fork)"
    guard = (
        "os.geteuid() or jail.become_nobody(); jail.leave_namespaces(); "
        "jail.set_limits(Bounds(), 1024)"
    )
    assert alone(tmp_path, guard, payload) == ["EAGAIN"]


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    payload = """
    readable, writable = os.pipe()
    if os.fork() == 0:
        jail.die_with_parent()
        os.write(writable, b"x")
        while True:
            time.sleep(60)
    os.read(readable, 1)
    """
    # The one that was forked has the same output, which is at its end once both are gone.
    assert said(run_payload(tmp_path, payload)) == []
