"""Requests at the extremes of what the doors take, and a little beyond, drawn at random.

Each is a function of a seed and its number, so that one that hurt can be sent again alone.
"""

import json
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MOST_WEBSOCKET_BYTES: Final = 60_000

Fields = dict[str, Any]
Extreme = Callable[[Random], Fields]


@dataclass(frozen=True, kw_only=True)
class LegalRequest:
    """`extremes` are the names of what was drawn for it; after `patience` seconds its client
    leaves."""

    number: int
    path: str
    body: Fields
    over_websocket: bool
    patience: float
    extremes: list[str] = field(default_factory=list)


def draw(seed: int, number: int, model: str) -> LegalRequest:
    """Return the request of this number."""
    random = Random(f"{seed}:{number}")
    is_chat = random.random() < 0.7
    table = {**_BOTH, **(_CHAT_ONLY if is_chat else _COMPLETIONS_ONLY)}
    names = sorted(random.sample(sorted(table), random.choice((1, 1, 2, 2, 3, 4, 6))))
    body: Fields = {"model": model, "temperature": 1, "max_tokens": random.choice((1, 16, 64, 300))}
    body |= (
        {"messages": [{"role": "user", "content": _words(random, 20)}]}
        if is_chat
        else {"prompt": _words(random, 20)}
    )
    body["stream"] = random.random() < 0.5
    for name in names:
        body |= table[name](random)
    fits = len(json.dumps(body)) < MOST_WEBSOCKET_BYTES
    return LegalRequest(
        number=number,
        path=CHAT if is_chat else COMPLETIONS,
        body=body,
        over_websocket=fits and random.random() < 0.2,
        patience=random.choice((2.0, 10.0, 120.0)),
        extremes=names,
    )


def _words(random: Random, count: int) -> str:
    return " ".join(random.choice(_WORDS) for _ in range(count))


def _text(random: Random, size: int) -> str:
    """Text that a tokenizer likes, or none of it."""
    match random.randrange(5):
        case 0:
            return "a" * size
        case 1:
            return "".join(random.choices(string.printable, k=size))
        case 2:
            return "水é🌊\u0301" * (size // 12)
        case 3:
            return " " * size
    return _words(random, size // 6)


def _size(random: Random, most: int) -> int:
    """Return a size up to `most`, as often small as large."""
    return int(most ** random.uniform(0.3, 1))


_WORDS: Final = "water gate turbine penstock the of a is to answer JSON true 42 open".split()  # noqa: SIM905
_PATTERNS: Final = (
    "(a|b|c)?" * 60,
    "(.*)*",
    "(a+)+b",
    ".{0,9000}",
    "[a-z]{1,4000}",
    "((a{0,20}){0,20}){0,20}",
    "(a|b)*a(a|b){12}",
    r"\w+@\w+\.com",
    "([",
)
_GRAMMARS: Final = (
    'root ::= root root | "a"',
    'root ::= root root root | root root | "a" | ""',
    'root ::= "a" root "a" | "b" root "b" | [ab]*',
    "root ::= " + ' ("a" | "b")?' * 2000,
    "root ::= " + " [a-z]*" * 200,
    'root ::= ((("a" | "b"){1,100}){1,100}){1,100}',
    'e ::= e "+" e | "(" e ")" | "a"\nroot ::= e',
    "start: /[a-z ]+/",
    "root ::= (",
)


def _schema(random: Random) -> Fields:
    """A JSON schema that is wide, deep, repetitive or recursive."""
    leaf: Fields = random.choice(
        (
            {"type": "string"},
            {"type": "string", "maxLength": 10 ** random.randrange(1, 7)},
            {"type": "string", "minLength": 10 ** random.randrange(1, 7)},
            {"type": "string", "pattern": random.choice(_PATTERNS)},
            {"type": "string", "format": random.choice(("uri", "ipv6", "date-time", "uuid"))},
            {"type": "integer", "minimum": -(10**18), "maximum": 10**18},
            {"type": "number", "multipleOf": 0.001},
            {"enum": [f"value {index}" for index in range(_size(random, 3000))]},
            {"enum": ["x" * _size(random, 60_000)]},
            {"$ref": "#"},
        )
    )
    match random.randrange(6):
        case 0:
            return {"type": "object", "properties": {"a": leaf}, "required": ["a"]}
        case 1:
            names = [f"property{index}" for index in range(_size(random, 800))]
            return {"type": "object", "properties": dict.fromkeys(names, leaf)}
        case 2:
            items = 10 ** random.randrange(1, 7)
            return {"type": "array", "items": leaf, "minItems": items, "maxItems": items}
        case 3:
            for _ in range(random.randrange(1, 40)):
                leaf = {"type": "object", "properties": {"a": leaf}, "required": ["a"]}
            return leaf
        case 4:
            for _ in range(random.randrange(1, 9)):
                leaf = {"anyOf": [leaf, {"type": "array", "items": leaf}]}
            return leaf
    return {"$defs": {"a": leaf}, "anyOf": [{"$ref": "#/$defs/a"}] * _size(random, 500)}


def _tool(random: Random, number: int) -> Fields:
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
    function: Fields = {"name": f"tool_{number}", "parameters": parameters}
    if random.random() < 0.1:
        function["parameters"] = _schema(random)
    return {"type": "function", "function": function}


_BOTH: Final[dict[str, Extreme]] = {
    "choices": lambda random: {"n": random.choice((2, 16, 16))},
    "long output": lambda random: {"max_tokens": random.choice((1000, 1900)), "ignore_eos": True},
    "least tokens": lambda random: {"max_tokens": 300, "min_tokens": 300},
    "greedy": lambda random: {"temperature": 0},
    "hot": lambda random: {"temperature": 2, "top_p": 1, "top_k": -1},
    "filters": lambda random: {"top_k": 2**31 - 1, "top_p": 1e-9, "min_p": 1},
    "penalties": lambda random: {
        "presence_penalty": -2,
        "frequency_penalty": 2,
        "repetition_penalty": random.choice((0.01, 10)),
    },
    "logit bias": lambda random: {
        "logit_bias": {str(each): 100 for each in random.sample(range(4096), 1024)}
    },
    "allowed tokens": lambda random: {
        "allowed_token_ids": random.sample(range(4096), random.choice((1, 1024)))
    },
    "stop texts": lambda random: {"stop": [_text(random, 500) or "x" for _ in range(16)]},
    "stop tokens": lambda random: {"stop_token_ids": random.sample(range(4096), 64)},
    "bad words": lambda random: {"bad_words": [_words(random, 60)[:512] for _ in range(64)]},
    "repetition": lambda random: {
        "repetition_detection": {
            "max_pattern_size": 256,
            "min_pattern_size": random.choice((1, 255)),
            "min_count": random.choice((2, 256)),
        }
    },
    "seed": lambda random: {"seed": random.choice((-(2**63), 0, 2**63 - 1))},
    "token ids": lambda random: {"return_token_ids": True, "return_tokens_as_token_ids": True},
    "interval": lambda random: {
        "stream": True,
        "stream_interval": random.choice((1, 97, 1024)),
    },
    "usage": lambda random: {
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    },
    "truncation": lambda random: {
        "truncate_prompt_tokens": random.choice((-1, 1, 1000)),
        "truncation_side": random.choice(("left", "right")),
    },
    "schema": lambda random: {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": _schema(random)},
        }
    },
    "schema as text": lambda random: {"structured_outputs": {"json": json.dumps(_schema(random))}},
    "pattern": lambda random: {"structured_outputs": {"regex": random.choice(_PATTERNS)}},
    "grammar": lambda random: {"structured_outputs": {"grammar": random.choice(_GRAMMARS)}},
    "choice": lambda random: {
        "structured_outputs": {"choice": [_words(random, 9) for _ in range(_size(random, 1000))]}
    },
    "JSON object": lambda random: {"response_format": {"type": "json_object"}},
}
_CHAT_ONLY: Final[dict[str, Extreme]] = {
    "alternatives": lambda random: {"logprobs": True, "top_logprobs": random.choice((0, 20, 20))},
    "long prompt": lambda random: {
        "messages": [{"role": "user", "content": _text(random, _size(random, 4_000_000))}]
    },
    "many messages": lambda random: {
        "messages": [
            {"role": random.choice(("user", "assistant", "system")), "content": _words(random, 1)}
            for _ in range(_size(random, 4096))
        ]
    },
    "tools": lambda random: {
        "tools": [_tool(random, number) for number in range(random.choice((1, 128)))],
        "tool_choice": random.choice(("none", "auto", "required")),
    },
    "documents": lambda random: {
        "documents": [{"text": _text(random, _size(random, 10_000))} for _ in range(64)]
    },
    "template values": lambda random: {
        "chat_template_kwargs": {f"value_{index}": "x" * 256 for index in range(16)}
    },
}
_COMPLETIONS_ONLY: Final[dict[str, Extreme]] = {
    "alternatives": lambda random: {"logprobs": random.choice((0, 20, 20))},
    "echo": lambda random: {"echo": True, "max_tokens": random.choice((0, 1, 16))},
    "long prompt": lambda random: {"prompt": _text(random, _size(random, 4_000_000)) or "x"},
    "many prompts": lambda random: {
        "prompt": [_words(random, _size(random, 900)) for _ in range(16)]
    },
    "token prompt": lambda random: {
        "prompt": random.choices(range(4096), k=_size(random, 500_000))
    },
}
