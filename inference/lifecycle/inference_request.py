"""A request as a door has validated it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_workers.protocol.messages import Api
from gpu_workers.protocol.policy import Capability


@dataclass(frozen=True, kw_only=True, slots=True)
class InferenceRequest:
    """What the client asks for. `body` is the JSON for the engine, with allowed fields only;
    `output_tokens` what the client asked for per choice, `output_param` under which name;
    `prompt_bytes` the UTF-8 bytes of the longest prompt's text, `prompt_token_ids` the most ids of
    one that is given as such, both found in `prompt_param`; a worker shortens one that
    `is_truncated`.

    The worst case is reserved by `prompt_bound`, the most tokens that the text of all `prompts`
    may have, `templates`, how often a template adds its part to it, and `choices`, how many
    outputs are generated in all. `logprobs_per_token` is how many log probabilities each token of
    an output comes with, its own and its alternatives', as `logprobs_param` asks. `is_resumable`:
    another worker may go on with it after its first token. `needs` are the capabilities that its
    model must have, each with the field of the body that asks for it. Requests with the same
    `sticky` text get the same of two versions of an adapter; empty: each request by itself.
    `labels` are all that it says of whom it is for.
    """

    api: Api
    model: str
    stream: bool
    body: bytes
    output_tokens: int | None
    output_param: str
    prompt_bytes: int
    prompt_param: str
    prompt_bound: int
    prompt_token_ids: int = 0
    is_truncated: bool = False
    prompts: int = 1
    templates: int = 1
    choices: int = 1
    logprobs_per_token: int = 0
    logprobs_param: str = "logprobs"
    is_resumable: bool = False
    needs: Mapping[Capability, str] = field(default_factory=dict)
    sticky: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
