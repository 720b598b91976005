"""A process that tries structures by what their texts say: `die`, or a finding, for which one that
is `held` waits for a byte from the pipe beside the journal. Writes down what it tries in the
journal, the file that its vocabulary names.

    python -m tests.support.workers.scripted_trials
"""

import sys
from pathlib import Path

import msgspec

from gpu_workers.vllm.structures import trial
from gpu_workers.vllm.structures.trial import Finding, Structure, Verdict, Vocabulary


def main() -> None:
    requests, verdicts = sys.stdin.buffer, sys.stdout.buffer
    journal = Path(msgspec.msgpack.decode(trial.read(requests), type=Vocabulary).tokenizer)
    while data := trial.read(requests):
        text = msgspec.msgpack.decode(data, type=Structure).text
        with journal.open("a") as lines:
            lines.write(f"{text}\n")
        if text.startswith("die"):
            sys.exit(1)
        if "held" in text.split():
            with gate_of(journal).open("rb", buffering=0) as gate:
                gate.read(1)
        trial.write(verdicts, Verdict(Finding(text.split()[0])))


def gate_of(journal: Path) -> Path:
    return journal.with_suffix(".gate")


if __name__ == "__main__":
    main()
