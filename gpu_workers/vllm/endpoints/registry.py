"""The APIs that vLLM serves, a line each."""

from typing import Final

from gpu_workers.protocol.messages import Api
from gpu_workers.vllm.endpoints.chat import ChatEndpoint
from gpu_workers.vllm.endpoints.completions import CompletionsEndpoint
from gpu_workers.vllm.endpoints.endpoint import Endpoint

ENDPOINTS: Final[dict[Api, type[Endpoint]]] = {
    Api.CHAT_COMPLETIONS: ChatEndpoint,
    Api.COMPLETIONS: CompletionsEndpoint,
}
# What any model has, even one without a template: it goes on from a text.
PLAINEST: Final = next(api for api, endpoint in ENDPOINTS.items() if not endpoint.needs_template)
