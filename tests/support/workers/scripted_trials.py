"""A process that tries structures by what their texts say: `die`, or a finding. Writes down what it
has tried in the file that its vocabulary names.

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
        trial.write(verdicts, Verdict(Finding(text.split()[0])))


if __name__ == "__main__":
    main()
