"""The APIs that the simulated engine serves, a line each."""

from typing import Final

from gpu_workers.protocol.messages import Api
from gpu_workers.sim.endpoints.chat import SimChatEndpoint
from gpu_workers.sim.endpoints.completions import SimCompletionsEndpoint
from gpu_workers.sim.endpoints.endpoint import SimEndpoint

ENDPOINTS: Final[dict[Api, SimEndpoint]] = {
    Api.CHAT_COMPLETIONS: SimChatEndpoint(),
    Api.COMPLETIONS: SimCompletionsEndpoint(),
}
