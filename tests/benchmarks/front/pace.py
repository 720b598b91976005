"""How fast a replayed engine makes its steps, told over a datagram socket."""

import socket
from pathlib import Path
from typing import Final

# The variable that holds the socket's path.
PACE: Final = "PENSTOCK_BENCH_PACE"
# AsyncLLM is ready for the next step. Anything else is a number, from the benchmark: the least
# milliseconds between steps. At first that is 0: as fast as they are taken.
MORE: Final = b"."


def set_pace(address: Path, step_ms: float) -> None:
    """Set the least time between steps."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as said:
        said.sendto(str(step_ms).encode(), str(address))
