"""Conversations as token ids, by the base's own chat template; the answers alone are learnt."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from gpu_workers.demo_model.examples import Example
from gpu_workers.train_adapter.conversations import Conversation, DataRefused, Turn

Span = tuple[int, int]
"""Where an answer stands in a rendered text: its first character, and the one after its last."""

_TEMPLATE_ADVICE: Final = "Correct the line, or train on a base whose template takes it"


def encoded_conversations(
    tokenizer: PreTrainedTokenizerBase,
    conversations: Sequence[Conversation],
    *,
    context_tokens: int,
    file: Path,
) -> list[Example]:
    """Return what to learn from the conversations, of which the first is line 1 of `file`.

    Each token of an answer, with what ends it, has weight 1, every other 0. Raises DataRefused for
    the first line that the chat template refuses or that has more than `context_tokens` tokens.
    """
    examples: list[Example] = []
    for line, conversation in enumerate(conversations, start=1):
        try:
            rendered = list(_rendered(tokenizer, conversation.messages))
        except (TemplateError, _TemplateRewrites) as error:
            reason = f"the base's chat template refuses it: {error}. {_TEMPLATE_ADVICE}"
            raise DataRefused("refused_by_template", reason, file=file, line=line) from error
        for text, spans in rendered:
            example = _encoded(tokenizer, text, spans)
            count = len(example.token_ids)
            if count > context_tokens:
                reason = (
                    f"it has {count} tokens, expected at most {context_tokens}: the base's context"
                )
                raise DataRefused("too_long", reason, file=file, line=line)
            if not any(example.weights):
                reason = f"the base's chat template shows no answer of it. {_TEMPLATE_ADVICE}"
                raise DataRefused("nothing_to_learn", reason, file=file, line=line)
            examples.append(example)
    return examples


class _TemplateRewrites(Exception):
    """The template shows an answer otherwise than after its own prompt."""


def _rendered(
    tokenizer: PreTrainedTokenizerBase, turns: Sequence[Turn]
) -> Iterator[tuple[str, list[Span]]]:
    """Yield the conversation as text with the spans of the answers to learn.

    One text has all answers, unless the template shows earlier turns otherwise once others follow
    (as those that leave earlier reasoning out): then each answer has a text of its own.
    """
    whole = _text(tokenizer, turns)
    upto_answers = []
    for place, turn in enumerate(turns):
        if turn.is_learnt:
            prompt = _text(tokenizer, turns[:place], is_prompt=True)
            answered = _text(tokenizer, turns[: place + 1])
            if not answered.startswith(prompt):
                raise _TemplateRewrites(f"message {place + 1} does not follow its prompt")
            upto_answers.append((answered, (len(prompt), len(answered))))
    if all(whole.startswith(answered) for answered, _ in upto_answers):
        yield whole, [span for _, span in upto_answers]
    else:
        for answered, span in upto_answers:
            yield answered, [span]


def _text(
    tokenizer: PreTrainedTokenizerBase, turns: Sequence[Turn], *, is_prompt: bool = False
) -> str:
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    text: str = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=is_prompt
    )
    return text


def _encoded(tokenizer: PreTrainedTokenizerBase, text: str, spans: Sequence[Span]) -> Example:
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    weights = [
        float(any(first <= start and end <= last for first, last in spans))
        for start, end in encoding["offset_mapping"]
    ]
    return Example(token_ids=encoding["input_ids"], weights=weights)
