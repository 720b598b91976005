"""How fast a replayed engine makes its steps, and how many it has made: one datagram socket."""

import socket
from pathlib import Path
from typing import Final

# The variable that holds the socket's path.
PACE: Final = "PENSTOCK_BENCH_PACE"
# From AsyncLLM: it is ready for the next step.
MORE: Final = b"."
# From the benchmark: how many steps so far? Anything else is a number, the least milliseconds
# between steps; at first that is 0: as fast as they are taken.
HOW_MANY: Final = b"?"
ANSWER_SECONDS: Final = 10.0


def set_pace(address: Path, step_ms: float) -> None:
    """Set the least time between steps."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as said:
        said.sendto(str(step_ms).encode(), str(address))


def count_steps(address: Path) -> int:
    """Return how many steps the engine has made since its start."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asked:
        asked.settimeout(ANSWER_SECONDS)
        asked.bind("")  # any free address, to be answered at
        asked.sendto(HOW_MANY, str(address))
        return int(asked.recv(64))
