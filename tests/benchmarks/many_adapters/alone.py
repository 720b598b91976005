"""What each adapter answers alone: an engine with one slot, one adapter loaded, one request at a
time. Runs in the engine's environment.

    python -m tests.benchmarks.many_adapters.alone JOB ANSWERS
"""

import sys
from pathlib import Path

import msgspec
import uvloop

from gpu_workers.__main__ import make_engine
from gpu_workers.config import WorkerConfig
from gpu_workers.engine import Engine, LoadableAdapter
from gpu_workers.process_tree import adopt_children, die_with_parent
from tests.benchmarks.many_adapters import questions
from tests.benchmarks.many_adapters.answers import Answer
from tests.support.gateways.cast import MODEL
from tests.support.workers.asking import ask
from tests.support.workers.envelopes import make_envelope


class Job(msgspec.Struct):
    """The settings of the engine, and opaque name -> folder of each adapter; of none, the base."""

    settings: dict[str, str]
    adapters: dict[str, str]


# Opaque name, empty for the base -> its answer to each question.
Answers = dict[str, list[Answer]]


async def answers_of(job: Job) -> Answers:
    config = WorkerConfig.from_environ(job.settings)
    engine, with_logprobs = make_engine(config), config.engine == "vllm"
    answers = {}
    try:
        await engine.start()
        for name, folder in job.adapters.items():
            await engine.load_adapter(LoadableAdapter(name=name, folder=Path(folder)))
            answers[name] = await _answers(engine, name, with_logprobs=with_logprobs)
            await engine.unload_adapter(name)
        return answers or {"": await _answers(engine, "", with_logprobs=with_logprobs)}
    finally:
        await engine.stop()


async def _answers(engine: Engine, adapter: str, *, with_logprobs: bool) -> list[Answer]:
    answers = []
    for number in range(questions.COUNT):
        envelope = make_envelope(
            questions.body(number, with_logprobs=with_logprobs),
            stream=False,
            max_output_tokens=questions.TOKENS,
            adapter=adapter,
            cache_salt=f"salt-{number}",  # nothing of it comes from a cache
            model=MODEL,
        )
        answers.append(Answer.of((await ask(engine, envelope)).body))
    return answers


def main() -> None:
    job, answers = (Path(each) for each in sys.argv[1:])
    found = uvloop.run(answers_of(msgspec.json.decode(job.read_bytes(), type=Job)))
    answers.write_bytes(msgspec.msgpack.encode(found))


if __name__ == "__main__":
    die_with_parent()
    adopt_children()
    main()
