"""The gateway as one thing to mount: made once a process, started and stopped by its lifespan."""

from dataclasses import dataclass

from inference.lifecycle.completions import Completions, GatewaySettings
from inference.openai_api.app import OpenAIApi


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """`http` serves every path under /v1/; `completions` is what further doors share."""

    settings: GatewaySettings
    completions: Completions
    http: OpenAIApi

    async def startup(self) -> None:
        await self.completions.start()

    async def shutdown(self) -> None:
        await self.completions.stop()


def create_gateway(settings: GatewaySettings) -> Gateway:
    """Create the gateway. Opens no connection yet, so it may be called at import."""
    completions = Completions(settings)
    return Gateway(
        settings=settings,
        completions=completions,
        http=OpenAIApi(
            completions,
            max_body_bytes=settings.max_body_bytes,
            stall_seconds=settings.stall_seconds,
        ),
    )
