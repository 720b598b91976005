"""The fields that chat completions and completions share: OpenAI's and vLLM's sampling extras.

Every official field is known. Those that change nothing here are taken and dropped (`INERT`),
those whose meaning would be lost are refused with a sentence (`REFUSED`), any other is unknown.
The body for the engine is encoded anew from what is left: nothing of the client's own JSON.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from gpu_workers.protocol.policy import Capability
from inference.errors import InvalidRequest
from inference.openai_api.structures import (
    MAX_BYTES,
    check_choices,
    check_grammar,
    check_pattern,
    check_schema,
    check_schema_text,
)

MAX_CHOICES: Final = 16
# Of one event of a stream: its worker renders it in one go, 10 ms of its event loop.
_MAX_EVENT_LOGPROBS: Final = 2_048
_MAX_REGEX_CHARACTERS: Final = 4 * 1024

TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
StopString = Annotated[str, Meta(min_length=1, max_length=512)]
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class StreamOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`include_obfuscation` is taken and dropped: chunks are not padded here."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


class JsonSchema(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    name: Annotated[str, Meta(min_length=1, max_length=64)]
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class TextFormat(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    """Plain text."""


class JsonFormat(msgspec.Struct, tag_field="type", tag="json_object", forbid_unknown_fields=True):
    """Any JSON object."""


class JsonSchemaFormat(
    msgspec.Struct, tag_field="type", tag="json_schema", forbid_unknown_fields=True
):
    """JSON of a schema."""

    json_schema: JsonSchema


class StructuralTagFormat(
    msgspec.Struct,
    tag_field="type",
    tag="structural_tag",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """vLLM's structural tags, in its new form (`format`) or its older one."""

    format: Any = None
    structures: list[dict[str, Any]] | None = None
    triggers: list[str] | None = None


ResponseFormat = TextFormat | JsonFormat | JsonSchemaFormat | StructuralTagFormat


class StructuredOutputs(
    msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """vLLM's structured outputs: exactly one of the first six."""

    json: str | dict[str, Any] | None = None
    regex: Annotated[str, Meta(max_length=_MAX_REGEX_CHARACTERS)] | None = None
    choice: Annotated[list[str], Meta(min_length=1, max_length=1000)] | None = None
    grammar: Annotated[str, Meta(max_length=MAX_BYTES)] | None = None
    json_object: bool | None = None
    structural_tag: Annotated[str, Meta(max_length=MAX_BYTES)] | None = None
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None
    whitespace_pattern: Annotated[str, Meta(max_length=256)] | None = None


class RepetitionDetection(
    msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """vLLM: end a choice that repeats itself."""

    max_pattern_size: Annotated[int, Meta(ge=0, le=256)] | None = None
    min_pattern_size: Annotated[int, Meta(ge=0, le=256)] | None = None
    min_count: Annotated[int, Meta(ge=0, le=256)] | None = None


class SamplingFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What both bodies have in common. None means "not given", for every field."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    frequency_penalty: Penalty | None = None
    logit_bias: (
        Annotated[dict[str, Annotated[float, Meta(ge=-100, le=100)]], Meta(max_length=1024)] | None
    ) = None
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    presence_penalty: Penalty | None = None
    response_format: ResponseFormat | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=16)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None

    # vLLM's extras
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=64)] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    truncation_side: Literal["left", "right"] | None = None
    allowed_token_ids: Annotated[list[TokenId], Meta(min_length=1, max_length=1024)] | None = None
    bad_words: Annotated[list[StopString], Meta(max_length=64)] | None = None
    add_special_tokens: bool | None = None
    structured_outputs: StructuredOutputs | None = None
    thinking_token_budget: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    repetition_detection: RepetitionDetection | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    stream_interval: Annotated[int, Meta(ge=1, le=1024)] | None = None

    # taken and dropped
    user: str | None = None
    session_id: str | None = None

    # known and refused
    use_beam_search: Any = None
    length_penalty: Any = None
    watermarking: Any = None
    prompt_logprobs: Any = None
    logprob_token_ids: Any = None
    priority: Any = None
    request_id: Any = None
    cache_salt: Any = None
    kv_transfer_params: Any = None
    ec_transfer_params: Any = None
    vllm_xargs: Any = None
    routed_experts_prompt_start: Any = None
    return_token_offsets: Any = None
    mm_payload: Any = None
    return_mm_kwargs: Any = None
    lora_request: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None


INERT: Final = ("user", "session_id")

_OURS: Final = "it is set by the service"
_USE_STRUCTURED: Final = "use response_format or structured_outputs"
# Field -> (values that ask for nothing, why any other is refused).
REFUSED: Final[dict[str, tuple[tuple[Any, ...], str]]] = {
    "use_beam_search": ((False,), "beam search is not available"),
    "length_penalty": ((1, 1.0), "it applies to beam search only, which is not available"),
    "watermarking": ((False,), "watermarking is not available"),
    "prompt_logprobs": ((), "log probabilities of the prompt are not available"),
    "logprob_token_ids": (([],), "use logprobs"),
    "priority": ((), f"{_OURS} according to the tier"),
    "request_id": ((), f"{_OURS}; the answer's x-request-id has it"),
    "cache_salt": ((), _OURS),
    "kv_transfer_params": ((), _OURS),
    "ec_transfer_params": ((), _OURS),
    "vllm_xargs": (({},), "engine extensions are not available"),
    "routed_experts_prompt_start": ((0,), "routing data is not available"),
    "return_token_offsets": ((False,), "it has a meaning for vLLM's render endpoints only"),
    "mm_payload": (("tensors",), "only text is served"),
    "return_mm_kwargs": ((False, True), "only text is served"),
    "lora_request": ((), "adapters are served as models; name one in model"),
    "guided_json": ((), _USE_STRUCTURED),
    "guided_regex": ((), _USE_STRUCTURED),
    "guided_choice": ((), _USE_STRUCTURED),
    "guided_grammar": ((), _USE_STRUCTURED),
}


def refuse_unsupported(
    body: msgspec.Struct, refused: dict[str, tuple[tuple[Any, ...], str]]
) -> None:
    """Raise for a field whose meaning would be lost; clear those that ask for nothing."""
    for name, (harmless, reason) in refused.items():
        value = getattr(body, name)
        if value is None:
            continue
        if not any(value == each and type(value) is type(each) for each in harmless):
            raise InvalidRequest(
                f"{name!r} is not supported: {reason}.", param=name, code="unsupported_field"
            )
        setattr(body, name, None)


def clear_fields(body: msgspec.Struct, names: tuple[str, ...]) -> None:
    """Clear fields that are taken but mean nothing to the engine."""
    for name in names:
        setattr(body, name, None)


def check_sampling(body: SamplingFields, output_tokens: int | None, output_param: str) -> None:
    """Check fields against one another. Raises `InvalidRequest`."""
    if body.stream_options is not None:
        if not body.stream:
            raise InvalidRequest(
                "'stream_options' may only be given with 'stream': true.", param="stream_options"
            )
        body.stream_options.include_obfuscation = None
    if output_tokens is not None and (body.min_tokens or 0) > output_tokens:
        raise InvalidRequest(
            f"'min_tokens' is {body.min_tokens}, more than {output_param!r}, {output_tokens}.",
            param="min_tokens",
        )
    for token_id in body.logit_bias or ():
        if not (token_id.isascii() and token_id.isdigit() and len(token_id) <= 10):
            raise InvalidRequest(
                f"'logit_bias' takes token ids as keys, got {token_id[:40]!r}.", param="logit_bias"
            )
    _check_response_format(body.response_format)
    if body.structured_outputs is not None:
        _check_structured(body.structured_outputs)


def check_stream_interval(body: SamplingFields, logprobs_per_token: int) -> None:
    """Refuse events that each would hold too many log probabilities. Raises `InvalidRequest`."""
    asked = (body.stream_interval or 1) * logprobs_per_token
    if asked > _MAX_EVENT_LOGPROBS:
        raise InvalidRequest(
            f"'stream_interval' is {body.stream_interval}: with {logprobs_per_token} log "
            f"probabilities a token, an event would hold {asked}; at most {_MAX_EVENT_LOGPROBS} "
            f"are given. Lower it to {_MAX_EVENT_LOGPROBS // logprobs_per_token}.",
            param="stream_interval",
            code="answer_too_large",
        )


def needed_capabilities(body: SamplingFields) -> dict[Capability, str]:
    """Return the capabilities that these fields need, each with the field that asks for it."""
    needs = {}
    if body.response_format is not None and not isinstance(body.response_format, TextFormat):
        needs[Capability.JSON_SCHEMA] = "response_format"
    elif body.structured_outputs is not None:
        needs[Capability.JSON_SCHEMA] = "structured_outputs"
    if body.thinking_token_budget is not None:
        needs[Capability.REASONING] = "thinking_token_budget"
    return needs


def _check_response_format(wanted: ResponseFormat | None) -> None:
    if isinstance(wanted, JsonSchemaFormat):
        check_schema(wanted.json_schema.schema, "response_format.json_schema.schema")
    elif isinstance(wanted, StructuralTagFormat):
        check_schema([wanted.format, wanted.structures, wanted.triggers], "response_format")


def _check_structured(wanted: StructuredOutputs) -> None:
    kinds = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
    given = [kind for kind in kinds if getattr(wanted, kind) is not None]
    if len(given) != 1:
        raise InvalidRequest(
            f"'structured_outputs' takes exactly one of {', '.join(kinds)}; "
            f"got {', '.join(given) or 'none'}.",
            param="structured_outputs",
        )
    _check_structure(wanted)


def _check_structure(wanted: StructuredOutputs) -> None:
    match wanted:
        case StructuredOutputs(json=str(text)) | StructuredOutputs(structural_tag=str(text)):
            name = "json" if wanted.structural_tag is None else "structural_tag"
            check_schema_text(text, f"structured_outputs.{name}")
        case StructuredOutputs(json=dict(schema)):
            check_schema(schema, "structured_outputs.json")
        case StructuredOutputs(regex=str(pattern)):
            check_pattern(pattern, "structured_outputs.regex")
        case StructuredOutputs(choice=list(choices)):
            check_choices(choices, "structured_outputs.choice")
        case StructuredOutputs(grammar=str(grammar)):
            check_grammar(grammar, "structured_outputs.grammar")
