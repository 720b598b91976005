"""What the simulated engine cannot do: what a request asks for beyond text is refused, not lost."""

from typing import Any, Final

import msgspec

from gpu_workers.sim.refusal import incapable

# Field -> the capability that it asks for, and the values that ask for nothing.
_BEYOND: Final[dict[str, tuple[str, tuple[Any, ...]]]] = {
    "tools": ("tools", ([],)),
    "response_format": ("json_schema", ({"type": "text"},)),
    "structured_outputs": ("json_schema", ()),
    # 0 asks for the chosen token's own, in a completion.
    "logprobs": ("logprobs", (False,)),
    "reasoning_effort": ("reasoning", ("none",)),
    "thinking_token_budget": ("reasoning", ()),
    "echo": ("echo", (False,)),
    "allowed_token_ids": ("allowed_token_ids", ()),
    "return_token_ids": ("return_token_ids", (False,)),
    "return_tokens_as_token_ids": ("return_tokens_as_token_ids", (False,)),
}
_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def check_abilities(body: bytes) -> None:
    """Raise `SimRefusal` for the first field that asks for what simulated text cannot have."""
    fields = _decoder.decode(body)
    for name, (capability, harmless) in _BEYOND.items():
        if name not in fields:
            continue
        value = msgspec.json.decode(fields[name])
        if value is None or any(value == each and type(value) is type(each) for each in harmless):
            continue
        if name == "tools" and bytes(fields.get("tool_choice", b"")) == b'"none"':
            continue
        raise incapable(capability, name)
