"""`penstock chat`: ask a model, and see its tokens as they come."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import click

from command_line.service import Service, reaching, refusal, the_service
from command_line.shown import show_json

Message = dict[str, str]


@click.command()
@click.argument("prompt", required=False)
@click.option("--model", help="Default: the first that the key may name.")
@click.option("--system", help="What the model is told before.")
@click.option("--max-tokens", type=click.IntRange(1), help="At most so many tokens an answer.")
@click.option("--temperature", type=click.FloatRange(0, 2))
@click.option("--json", "as_json", is_flag=True, help="Print the whole answer as one JSON object.")
def chat(
    prompt: str | None,
    model: str | None,
    system: str | None,
    max_tokens: int | None,
    temperature: float | None,
    as_json: bool,
) -> None:
    """Ask a model. Without a PROMPT each line of the input is one, and the conversation goes on."""
    service = the_service()
    asked: dict[str, Any] = {"model": model or _first_model(service)}
    if max_tokens is not None:
        asked["max_tokens"] = max_tokens
    if temperature is not None:
        asked["temperature"] = temperature
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    for text in [prompt] if prompt is not None else _lines():
        messages.append({"role": "user", "content": text})
        body = {**asked, "messages": messages}
        if as_json:
            answer = service.call("POST", "/v1/chat/completions", body=body)
            show_json(answer)
            said = answer["choices"][0]["message"]["content"] or ""
        else:
            said = _streamed(service, body)
        messages.append({"role": "assistant", "content": said})


def _first_model(service: Service) -> str:
    models = service.call("GET", "/v1/models")["data"]
    if not models:
        raise click.UsageError("the key may name no model: give one with --model.")
    return str(models[0]["id"])


def _lines() -> Iterator[str]:
    """Yield what is typed or piped, until it ends."""
    is_typed = sys.stdin.isatty()
    while True:
        if is_typed:
            click.echo("> ", nl=False)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


def _streamed(service: Service, body: dict[str, Any]) -> str:
    """Print an answer as it comes, and return it. Raises as `Service.call` does."""
    said: list[str] = []
    with (
        reaching(service.url),
        service.client.stream(
            "POST", "/v1/chat/completions", json={**body, "stream": True}
        ) as answer,
    ):
        if not answer.is_success:
            raise refusal(answer.status_code, answer.read())
        for line in answer.iter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                click.echo()
                raise refusal(answer.status_code, line.removeprefix("data: ").encode())
            for choice in event["choices"]:
                piece = choice["delta"].get("content") or ""
                said.append(piece)
                click.echo(piece, nl=False)
    click.echo()
    return "".join(said)
