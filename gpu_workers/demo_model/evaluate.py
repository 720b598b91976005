"""Ask the demo model what it was never trained on: `python -m gpu_workers.demo_model.evaluate`.

Every held-out question is answered greedily; an answer passes when it holds the key fact of its
question and ends by itself. The command fails where fewer than `BAR` of all answers pass: those
to a question alone, under a system prompt and after other turns, together. So it does where forms
are filled in wrong too often: see forms/evaluate.py.
"""

import argparse
import logging
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from gpu_workers.demo_model import MODEL_FOLDER
from gpu_workers.demo_model.corpus import Conversation, Message, held_out_questions
from gpu_workers.demo_model.facts import FACTS, Fact
from gpu_workers.demo_model.forms.evaluate import FormKind, forms_report
from gpu_workers.demo_model.forms.form import Schema

log = logging.getLogger(__name__)

BAR: Final = 0.90
LONGEST_ANSWER_TOKENS: Final = 256
SEED: Final = 7

FinishReason = Literal["stop", "length"]
Answer = Callable[[str], tuple[str, str]]
"""Asks one question; gives the text of the answer and its finish_reason."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One question, what the model said and whether that passes."""

    fact: Fact
    question: str
    text: str
    finish_reason: str

    @property
    def has_passed(self) -> bool:
        return self.finish_reason == "stop" and self.fact.is_held_by(self.text)


@dataclass(frozen=True, kw_only=True)
class Report:
    """Outcomes of a set of questions."""

    title: str
    outcomes: tuple[Outcome, ...]

    @property
    def pass_share(self) -> float:
        return sum(outcome.has_passed for outcome in self.outcomes) / len(self.outcomes)

    @property
    def distinct_share(self) -> float:
        """Return distinct answers per fact asked about; 1.0 when no two facts share an answer."""
        answers = {outcome.text for outcome in self.outcomes if outcome.has_passed}
        facts = {outcome.fact.key for outcome in self.outcomes}
        return len(answers) / len(facts)

    def __str__(self) -> str:
        ended = sum(outcome.finish_reason == "stop" for outcome in self.outcomes)
        return (
            f"{self.title}: {self.pass_share:.1%} of {len(self.outcomes)} answers hold their fact "
            f"and end by themselves; {ended / len(self.outcomes):.1%} end by themselves; "
            f"{self.distinct_share:.1%} distinct answers per fact"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-folder", type=Path, default=MODEL_FOLDER)
    parser.add_argument("--temperature", type=float, default=0.0)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if not (arguments.model_folder / "model.safetensors").is_file():
        sys.exit(f"no model in {arguments.model_folder}: train one first (make demo-model)")
    model = LocalModel(arguments.model_folder, temperature=arguments.temperature)
    reports = [
        report("single turn", [(Message("user", question),) for _, question in questions()], model),
        report("system prompt", with_system_prompt(), model, every=4),
        report("multi-turn", after_other_turns(), model, every=4),
    ]
    for failed in (outcome for outcome in reports[0].outcomes if not outcome.has_passed):
        log.info(f"failed {failed.fact.key}: {failed.question} -> {failed.text!r}")
    for each in reports:
        log.info(each)
    outcomes = [outcome for each in reports for outcome in each.outcomes]
    share = sum(outcome.has_passed for outcome in outcomes) / len(outcomes)
    log.info(f"all {len(outcomes)} answers: {share:.1%}")
    forms = [forms_report(kind, model) for kind in FormKind]
    for filled in forms:
        log.info(filled)
    if share < BAR or any(filled.share < filled.bar for filled in forms):
        bars = ", ".join(f"{filled.bar:.0%} of {filled.kind}" for filled in forms)
        sys.exit(f"below a bar: {BAR:.0%} of answers, {bars}")


def questions() -> tuple[tuple[Fact, str], ...]:
    return held_out_questions()


def with_system_prompt() -> list[Conversation]:
    """Return each held-out question under a system prompt that training has not seen."""
    system = Message("system", "You answer visitors of our booth. Stay friendly and factual.")
    return [(system, Message("user", question)) for _, question in questions()]


def after_other_turns() -> list[Conversation]:
    """Return each held-out question after two earlier turns about other facts."""
    rng = random.Random(SEED)
    conversations: list[Conversation] = []
    for asked_fact, question in questions():
        others = rng.sample([fact for fact in FACTS if fact is not asked_fact], k=2)
        earlier = [
            message
            for fact in others
            for message in (
                Message("user", fact.held_out[0]),
                Message("assistant", fact.answer),
            )
        ]
        conversations.append((*earlier, Message("user", question)))
    return conversations


def report(
    title: str, conversations: Sequence[Conversation], model: "LocalModel", every: int = 1
) -> Report:
    """Judge the answers to every `every`-th conversation, given in the order of `questions()`."""
    asked = list(questions())[::every]
    answers = model.answers(conversations[::every])
    return Report(
        title=title,
        outcomes=tuple(
            Outcome(fact=fact, question=question, text=text, finish_reason=finish_reason)
            for (fact, question), (text, finish_reason) in zip(asked, answers, strict=True)
        ),
    )


def report_of(answer: Answer, every: int = 1) -> Report:
    """Make the same check of any server: `answer` asks one question and waits for the reply."""
    outcomes = []
    for fact, question in list(questions())[::every]:
        text, finish_reason = answer(question)
        outcomes.append(
            Outcome(fact=fact, question=question, text=text, finish_reason=finish_reason)
        )
    return Report(title="server", outcomes=tuple(outcomes))


class LocalModel:
    """The saved model in transformers, with a LoRA adapter or without, for batches of
    conversations."""

    def __init__(
        self,
        folder: Path,
        *,
        adapter: Path | None = None,
        temperature: float = 0.0,
        batch_size: int = 64,
    ) -> None:
        # Imported here so that `report_of` can be used where there is no torch.
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.manual_seed(SEED)
        self._torch = torch
        self._tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        if adapter is not None:
            from peft import PeftModel

            self._model = PeftModel.from_pretrained(self._model, adapter).eval()
        self._temperature = temperature
        self._batch_size = batch_size

    def answers(
        self, conversations: Sequence[Conversation], schemas: Sequence[Schema] = ()
    ) -> list[tuple[str, FinishReason]]:
        """Return text and finish_reason of the reply to each conversation, in order, each in JSON
        of its schema where there are schemas."""
        replies: list[tuple[str, FinishReason]] = []
        for first in range(0, len(conversations), self._batch_size):
            batch = slice(first, first + self._batch_size)
            replies += self._batch(conversations[batch], schemas[batch])
        return replies

    def _batch(
        self, conversations: Sequence[Conversation], schemas: Sequence[Schema]
    ) -> Iterable[tuple[str, FinishReason]]:
        prompts = [
            [{"role": message.role, "content": message.content} for message in turns]
            for turns in conversations
        ]
        inputs = self._tokenizer.apply_chat_template(
            prompts,
            add_generation_prompt=True,
            padding=True,
            return_tensors="pt",
            return_dict=True,
        )
        sampling: dict[str, bool | float] = {"do_sample": False}
        if self._temperature:
            sampling = {"do_sample": True, "temperature": self._temperature}
        with self._torch.inference_mode():
            output = self._model.generate(
                **inputs,
                max_new_tokens=LONGEST_ANSWER_TOKENS,
                logits_processor=self._grammars(schemas),
                **sampling,
            )
        end = self._tokenizer.eos_token_id
        for generated in output[:, inputs["input_ids"].shape[1] :].tolist():
            finish_reason: FinishReason = "stop" if end in generated else "length"
            text = self._tokenizer.decode(generated, skip_special_tokens=True)
            yield text.strip(), finish_reason

    def _grammars(self, schemas: Sequence[Schema]) -> list[Any]:
        """Return what lets through only what each schema allows: the library that vLLM uses."""
        if not schemas:
            return []
        import xgrammar
        from xgrammar.contrib.hf import LogitsProcessor

        vocabulary = xgrammar.TokenizerInfo.from_huggingface(
            self._tokenizer, vocab_size=self._model.config.vocab_size
        )
        compiler = xgrammar.GrammarCompiler(vocabulary)
        return [LogitsProcessor([compiler.compile_json_schema(schema) for schema in schemas])]


if __name__ == "__main__":
    main()
