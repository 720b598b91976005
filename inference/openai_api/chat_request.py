"""The body of POST /v1/chat/completions."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from gpu_workers.protocol.labels import said_labels
from gpu_workers.protocol.messages import Api
from gpu_workers.protocol.policy import Capability
from inference.errors import InvalidRequest
from inference.lifecycle.inference_request import InferenceRequest
from inference.openai_api import parsing
from inference.openai_api.resumable import is_resumable
from inference.openai_api.sampling import (
    INERT,
    REFUSED,
    ReasoningEffort,
    SamplingFields,
    check_sampling,
    check_stream_interval,
    clear_fields,
    needed_capabilities,
    refuse_unsupported,
)
from inference.openai_api.structures import check_schema

_FunctionName = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
_TemplateValue = bool | int | float | Annotated[str, Meta(max_length=256)] | None


class _Part(
    msgspec.Struct,
    kw_only=True,
    tag_field="type",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """Content in parts. Images, audio and files are not served."""


class TextPart(_Part, tag="text"):
    text: str
    prompt_cache_breakpoint: Any = None


class RefusalPart(_Part, tag="refusal"):
    refusal: str


class FunctionCall(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: str


class ToolCall(
    msgspec.Struct,
    kw_only=True,
    tag_field="type",
    tag="function",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    id: str
    function: FunctionCall
    index: int | None = None


class _Message(
    msgspec.Struct,
    kw_only=True,
    tag_field="role",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """One turn of the conversation."""


class SystemMessage(_Message, tag="system"):
    content: str | list[TextPart]
    name: str | None = None


class DeveloperMessage(_Message, tag="developer"):
    content: str | list[TextPart]
    name: str | None = None


class UserMessage(_Message, tag="user"):
    content: str | list[TextPart]
    name: str | None = None


class AssistantMessage(_Message, tag="assistant"):
    """Takes what our own answers hold, so that a client can send them back as they came."""

    content: str | list[TextPart | RefusalPart] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    annotations: Any = None
    function_call: Any = None
    audio: Any = None


class ToolMessage(_Message, tag="tool"):
    content: str | list[TextPart]
    tool_call_id: str
    name: str | None = None


class FunctionMessage(_Message, tag="function"):
    content: str | None
    name: str


Message = (
    SystemMessage
    | DeveloperMessage
    | UserMessage
    | AssistantMessage
    | ToolMessage
    | FunctionMessage
)


class Function(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    name: _FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(
    msgspec.Struct, kw_only=True, tag_field="type", tag="function", forbid_unknown_fields=True
):
    function: Function


class FunctionReference(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class NamedToolChoice(msgspec.Struct, tag_field="type", tag="function", forbid_unknown_fields=True):
    function: FunctionReference


class ChatBody(SamplingFields, kw_only=True):
    """Every field of OpenAI's chat completions and of vLLM's."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=4096)]
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    tools: Annotated[list[Tool], Meta(min_length=1, max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedToolChoice | None = None

    # vLLM's extras
    include_reasoning: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    documents: Annotated[list[dict[str, str]], Meta(max_length=64)] | None = None
    chat_template_kwargs: Annotated[dict[str, _TemplateValue], Meta(max_length=16)] | None = None
    return_prompt_text: bool | None = None

    # taken and dropped
    metadata: Annotated[dict[str, str], Meta(max_length=16)] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None

    # known and refused
    audio: Any = None
    modalities: Any = None
    prediction: Any = None
    web_search_options: Any = None
    moderation: Any = None
    verbosity: Any = None
    functions: Any = None
    function_call: Any = None
    echo: Any = None
    chat_template: Any = None
    media_io_kwargs: Any = None
    mm_processor_kwargs: Any = None


_INERT: Final = (
    *INERT,
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
)
_ONLY_TEXT: Final = "only text is served"
_USE_TOOLS: Final = "functions are called through tools and tool_choice"
REFUSED_BY_CHAT: Final[dict[str, tuple[tuple[Any, ...], str]]] = {
    **REFUSED,
    "audio": ((), _ONLY_TEXT),
    "modalities": ((["text"], []), _ONLY_TEXT),
    "prediction": ((), "predicted outputs are not served"),
    "web_search_options": ((), "web search is not served"),
    "moderation": ((), "moderation is not served"),
    "verbosity": (("medium",), "the models here have no verbosity; ask for it in the prompt"),
    "functions": (([],), _USE_TOOLS),
    "function_call": (("none", "auto"), _USE_TOOLS),
    "echo": ((False,), "it has a meaning for completions only"),
    "chat_template": ((), "the model's own template is used"),
    "media_io_kwargs": (({},), _ONLY_TEXT),
    "mm_processor_kwargs": (({},), _ONLY_TEXT),
}
_TEMPLATE_RESERVED: Final = ("chat_template", "tokenize", "messages", "tools", "documents")

_decoder: Final = msgspec.json.Decoder(ChatBody)
_encode: Final = msgspec.json.Encoder().encode


def parse_chat(data: bytes) -> InferenceRequest:
    """Return the validated request. Raises `InvalidRequest`."""
    body = parsing.decode(data, _decoder)
    refuse_unsupported(body, REFUSED_BY_CHAT)
    sticky = body.prompt_cache_key or body.safety_identifier or body.user or ""
    labels = said_labels(body.user, body.metadata)
    clear_fields(body, _INERT)
    named = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    asked = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    if asked == 0:
        raise InvalidRequest(f"{named!r} must be at least 1, got 0.", param=named)
    check_sampling(body, asked, named)
    _check_logprobs(body)
    logprobs_per_token = 1 + (body.top_logprobs or 0) if body.logprobs else 0
    check_stream_interval(body, logprobs_per_token)
    _check_tools(body)
    _check_template(body)
    return InferenceRequest(
        api=Api.CHAT_COMPLETIONS,
        model=body.model,
        stream=bool(body.stream),
        prompt_bytes=sum(
            _checked_text_bytes(message, index) for index, message in enumerate(body.messages)
        ),
        prompt_param="messages",
        prompt_bound=_prompt_bound(body),
        is_truncated=body.truncate_prompt_tokens is not None,
        templates=len(body.messages),
        choices=body.n or 1,
        logprobs_per_token=logprobs_per_token,
        logprobs_param="top_logprobs",
        is_resumable=is_resumable(body, choices=body.n or 1),
        output_tokens=asked,
        output_param=named,
        body=parsing.encode(body),
        needs=_needs(body),
        sticky=sticky,
        labels=labels,
    )


def _needs(body: ChatBody) -> dict[Capability, str]:
    needs = {Capability.CHAT: "model"}
    if body.tools is not None and body.tool_choice != "none":
        needs[Capability.TOOLS] = "tools"
    if body.reasoning_effort not in (None, "none"):
        needs[Capability.REASONING] = "reasoning_effort"
    return needs | needed_capabilities(body)


def _checked_text_bytes(message: Message, index: int) -> int:
    if isinstance(message, AssistantMessage):
        for name in ("audio", "function_call"):
            if getattr(message, name) is not None:
                param = f"messages[{index}].{name}"
                raise InvalidRequest(
                    f"{param!r} is not supported: use text and tool_calls.", param=param
                )
        message.annotations = None
    content = message.content
    if content is None:
        return 0
    if isinstance(content, str):
        return _utf8_length(content)
    total = 0
    for part in content:
        if isinstance(part, RefusalPart):
            total += _utf8_length(part.refusal)
        else:
            part.prompt_cache_breakpoint = None
            total += _utf8_length(part.text)
    return total


def _prompt_bound(body: ChatBody) -> int:
    """Return all that a template may render, in tokens at most: the messages with names, ids, tool
    calls and reasoning, tools, documents, and arguments of the template."""
    total = 0
    for message in body.messages:
        if type(message.content) is str and not isinstance(message, AssistantMessage):
            total += parsing.max_tokens_in(message.content)
            if message.name is not None:
                total += parsing.max_tokens_in(message.name)
            if isinstance(message, ToolMessage):
                total += parsing.max_tokens_in(message.tool_call_id)
        else:
            total += parsing.max_tokens_in(_encode(message).decode())
    for part in (body.tools, body.documents, body.chat_template_kwargs):
        if part is not None:
            total += parsing.max_tokens_in(_encode(part).decode())
    return total


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _check_logprobs(body: ChatBody) -> None:
    if body.top_logprobs and not body.logprobs:
        raise InvalidRequest("'top_logprobs' needs 'logprobs': true.", param="top_logprobs")


def _check_tools(body: ChatBody) -> None:
    choice, tools = body.tool_choice, body.tools
    if choice == "none" or (choice is None and tools is None):
        return
    if tools is None:
        raise InvalidRequest("'tool_choice' needs 'tools'.", param="tool_choice")
    # Those whose parameters are a schema that the answer has to follow
    binding = tools
    if choice is None or choice == "auto":
        binding = [tool for tool in tools if tool.function.strict]
    elif isinstance(choice, NamedToolChoice):
        name = choice.function.name
        binding = [tool for tool in tools if tool.function.name == name]
        if not binding:
            raise InvalidRequest(
                f"'tool_choice' names {name[:64]!r}, which is none of 'tools'.",
                param="tool_choice.function.name",
            )
    check_schema([tool.function.parameters for tool in binding], "tools")


def _check_template(body: ChatBody) -> None:
    for name in body.chat_template_kwargs or ():
        if name in _TEMPLATE_RESERVED:
            param = f"chat_template_kwargs.{name}"
            raise InvalidRequest(f"{param!r} is not supported: the service sets it.", param=param)
