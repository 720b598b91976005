"""POST /v1/completions."""

from functools import partial
from typing import Any, ClassVar

from starlette.datastructures import State
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
from vllm.outputs import RequestOutput

from gpu_workers.vllm.endpoints.endpoint import Endpoint, FastPath, ParsedRequest
from gpu_workers.vllm.endpoints.logprobs import completion_logprobs


class PiecewiseCompletion(OpenAIServingCompletion):  # type: ignore[misc]  # vLLM is not seen here
    """Answers as `OpenAIServingCompletion` does; log probabilities are rendered in pieces."""

    is_enabled: ClassVar[bool] = True

    @classmethod
    def over(cls, completion: OpenAIServingCompletion) -> "PiecewiseCompletion":
        """Return the same object, set up by vLLM, under this class."""
        piecewise = cls.__new__(cls)
        piecewise.__dict__.update(completion.__dict__)
        return piecewise

    def request_output_to_completion_response(
        self,
        final_res_batch: list[RequestOutput],
        request: CompletionRequest,
        request_id: str,
        *arguments: Any,
    ) -> Any:
        # Those of an echoed prompt are few, and mixed with the others.
        if self.is_enabled and request.logprobs is not None and not request.echo:
            self.engine_client.generation_of(request_id).logprobs = partial(
                completion_logprobs,
                [output for result in final_res_batch for output in result.outputs],
                partial(self._render_logprobs, request),
                1 + request.logprobs,
            )
            request = request.model_copy(update={"logprobs": None})
        return super().request_output_to_completion_response(
            final_res_batch, request, request_id, *arguments
        )

    def _render_logprobs(
        self, request: CompletionRequest, output: Any, start: int, end: int
    ) -> Any:
        return self._create_completion_logprobs(
            token_ids=output.token_ids[start:end],
            top_logprobs=output.logprobs[start:end],
            num_output_top_logprobs=request.logprobs,
            tokenizer=self.renderer.tokenizer,
            return_as_token_id=request.return_tokens_as_token_ids,
        )


class CompletionsEndpoint(Endpoint):
    """Texts or token ids as they are, several prompts in one request if need be."""

    fast_path: ClassVar[type[FastPath] | None] = PiecewiseCompletion
    question = {"prompt": "Water", "temperature": 0}
    kinds = {"logprobs": {"logprobs": 5}, "prompt_logprobs": {"logprobs": 5, "echo": True}}

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
