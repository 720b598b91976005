"""Ask each adapter what it was never trained on.

    .venv-engine/bin/python -m gpu_workers.demo_model.voices.evaluate

Every held-out question is answered greedily. An answer is in voice when it opens and closes as the
voice does and ends by itself; it is right when it also holds the key fact of its question. The
command fails where a voice is below a bar, and where the base alone already speaks in it.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_workers.demo_model import MODEL_FOLDER
from gpu_workers.demo_model.corpus import Message
from gpu_workers.demo_model.evaluate import LocalModel, Outcome
from gpu_workers.demo_model.voices import ADAPTERS_FOLDER, VOICES, Voice

log = logging.getLogger(__name__)

VOICE_BAR: Final = 0.90
FACT_BAR: Final = 0.80


@dataclass(frozen=True, kw_only=True)
class VoiceReport:
    """What came of a voice's held-out questions."""

    voice: Voice
    outcomes: tuple[Outcome, ...]

    @property
    def voice_share(self) -> float:
        return sum(map(self._is_in_voice, self.outcomes)) / len(self.outcomes)

    @property
    def fact_share(self) -> float:
        return sum(map(self.is_right, self.outcomes)) / len(self.outcomes)

    @property
    def has_passed(self) -> bool:
        return self.voice_share >= VOICE_BAR and self.fact_share >= FACT_BAR

    def is_right(self, outcome: Outcome) -> bool:
        return outcome.has_passed and self._is_in_voice(outcome)

    def _is_in_voice(self, outcome: Outcome) -> bool:
        return outcome.finish_reason == "stop" and self.voice.is_heard_in(outcome.text)

    def __str__(self) -> str:
        return (
            f"{self.voice.tenant}: {self.voice_share:.1%} of {len(self.outcomes)} held-out "
            f"questions in voice (bar {VOICE_BAR:.0%}), {self.fact_share:.1%} right "
            f"(bar {FACT_BAR:.0%})"
        )


def report_of(voice: Voice, answers: Sequence[tuple[str, str]]) -> VoiceReport:
    """Judge text and finish_reason of anybody's answers to `voice.held_out()`, in its order."""
    return VoiceReport(
        voice=voice,
        outcomes=tuple(
            Outcome(fact=fact, question=question, text=text, finish_reason=finish_reason)
            for (fact, question), (text, finish_reason) in zip(
                voice.held_out(), answers, strict=True
            )
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adapters-folder", type=Path, default=ADAPTERS_FOLDER)
    folder: Path = parser.parse_args().adapters_folder
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    has_failed = False
    for voice in VOICES:
        base = _asked_of(LocalModel(MODEL_FOLDER), voice)
        report = _asked_of(LocalModel(MODEL_FOLDER, adapter=folder / voice.adapter), voice)
        for wrong in (each for each in report.outcomes if not report.is_right(each)):
            log.info(f"wrong {wrong.fact.key}: {wrong.question} -> {wrong.text!r}")
        log.info(f"{report}; the base alone: {base.voice_share:.1%} in voice")
        has_failed |= not report.has_passed or base.voice_share > 0
    if has_failed:
        sys.exit("below the bars")


def _asked_of(model: LocalModel, voice: Voice) -> VoiceReport:
    questions = [(Message("user", question),) for _, question in voice.held_out()]
    return report_of(voice, model.answers(questions))


if __name__ == "__main__":
    main()
