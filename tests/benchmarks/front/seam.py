"""Where the replayed engine takes EngineCore's place, the same for both sides.

Runs in the engine's environment, in the process that holds AsyncLLM.
"""

import os
import socket
from typing import Any

from tests.benchmarks.front.pace import MORE, PACE
from tests.benchmarks.front.replay_core import run


def replace_engine_core() -> None:
    """Let AsyncLLM start the replayed engine, and tell that whenever it asks for more."""
    from vllm.v1.engine.core import EngineCoreProc
    from vllm.v1.engine.core_client import AsyncMPClient

    address = os.environ[PACE]
    EngineCoreProc.run_engine_core = staticmethod(run)
    telling = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    get_output = AsyncMPClient.get_output_async

    async def tell_and_get_output(self: Any) -> Any:
        telling.sendto(MORE, address)
        return await get_output(self)

    AsyncMPClient.get_output_async = tell_and_get_output
