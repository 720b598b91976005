"""vLLM's own server over the replayed engine answers with what was recorded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpu_workers.demo_model import MODEL_FOLDER
from tests.benchmarks.front.pace import PACE
from tests.benchmarks.load.prompts import SHORT
from tests.support.places import NO_TLS, ROOT
from tests.support.reference_vllm import reference_vllm

pytestmark = [pytest.mark.engine, pytest.mark.rare]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log: Path = tmp_path_factory.mktemp("replayed") / "vllm.log"
    module = "tests.benchmarks.front.vllm_server"
    environ = {"PYTHONPATH": str(ROOT), PACE: str(log.with_name("pace"))}
    with reference_vllm(
        MODEL_FOLDER, "demo", log, max_num_seqs=4, module=module, environ=environ
    ) as server:
        yield server.url


def ask(url: str, prompt: str, **fields: Any) -> Any:
    body = {"model": "demo", "messages": [{"role": "user", "content": prompt}], "max_tokens": 12}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body | fields, timeout=60, verify=NO_TLS)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_each_prompt_has_its_own_answer_every_time(url: str) -> None:
    first, second = (
        [ask(url, prompt)["choices"][0]["message"]["content"] for prompt in SHORT] for _ in range(2)
    )
    assert first == second
    assert len(set(first)) == len(SHORT)


def test_an_answer_ends_at_its_bound_and_is_counted(url: str) -> None:
    answer = ask(url, SHORT[0], max_tokens=600)  # more than was recorded
    assert answer["usage"]["completion_tokens"] == 600
    assert answer["choices"][0]["finish_reason"] == "length"


def test_several_choices_and_logprobs_are_answered(url: str) -> None:
    answer = ask(url, SHORT[0], n=2, logprobs=True, top_logprobs=2)
    assert len(answer["choices"]) == 2
    for choice in answer["choices"]:
        assert len(choice["logprobs"]["content"]) == 12
