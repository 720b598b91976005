"""POST /v1/completions."""

from typing import Any, ClassVar

from starlette.datastructures import State
from vllm.entrypoints.openai.completion.protocol import CompletionRequest

from gpu_workers.vllm.endpoints.endpoint import Endpoint, FastPath, ParsedRequest
from gpu_workers.vllm.parts import Part


def _fast_path() -> type[FastPath] | None:
    """Return the short path; None where another vLLM has what it builds on elsewhere: the probes
    report that."""
    try:
        from gpu_workers.vllm.endpoints.completions_fast_path import ShorterCompletion
    except ImportError:
        return None
    return ShorterCompletion


class CompletionsEndpoint(Endpoint):
    """Texts or token ids as they are, several prompts in one request if need be."""

    fast_path: ClassVar[type[FastPath] | None] = _fast_path()
    fast_path_part = Part.COMPLETIONS_FAST_PATH
    question = {"prompt": "Water", "temperature": 0}
    kinds = {"logprobs": {"logprobs": 5}, "prompt_logprobs": {"logprobs": 5, "echo": True}}
    streams = ({"logprobs": 1},)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._tokenizer = state.engine_client.renderer.get_tokenizer()

    def serving_object(self, state: State) -> Any:
        return state.openai_serving_completion

    def parse(self, body: dict[str, Any]) -> ParsedRequest:
        request = CompletionRequest.model_validate(body)
        prompts = _count_prompts(request.prompt)
        return ParsedRequest(
            vllm_request=request, prompts=prompts, sequences=prompts * (request.n or 1)
        )

    async def ask(self, vllm_request: Any) -> Any:
        return await self._serving_object.create_completion(vllm_request)

    async def prompt_overhead(self) -> int:
        """Return the special tokens, plus one for how a text begins."""
        return len(self._tokenizer.encode("x"))


def _count_prompts(prompt: Any) -> int:
    """Count the prompts: a list of token ids is one; of any other list, each item is one."""
    is_batch = isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int)
    return len(prompt) if is_batch else 1
