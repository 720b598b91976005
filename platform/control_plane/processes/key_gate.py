"""The check of API keys without a gateway: the management process takes uploads by key."""

from typing import Final

from gpu_workers.protocol.redis_url import connect_async_bounded
from inference.admission.gate import Admission
from inference.lifecycle.completions import GatewaySettings

_CONNECTIONS: Final = 8
_WAIT_SECONDS: Final = 5


class KeyGate:
    """Lives as long as its process. `admission` knows the policy snapshot once it has started."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._redis = connect_async_bounded(
            settings.dispatch_redis_url,
            max_connections=_CONNECTIONS,
            wait_seconds=_WAIT_SECONDS,
            socket_timeout=5,
            socket_connect_timeout=2,
        )
        self.admission = Admission(
            self._redis,
            pepper=settings.api_key_pepper,
            previous_peppers=settings.previous_api_key_peppers,
        )

    async def startup(self) -> None:
        await self.admission.start()

    async def shutdown(self) -> None:
        await self.admission.stop()
        await self._redis.aclose()
