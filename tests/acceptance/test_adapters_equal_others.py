"""Adapters answer as PEFT has them answer, and as vLLM's own server does: some of each, of the
many that `python -m tests.benchmarks.adapter_proofs.answers` asks."""

from pathlib import Path

import pytest

from tests.support.greedy_answers.compared import Verdict
from tests.support.greedy_answers.proof import prove

pytestmark = [pytest.mark.engine, pytest.mark.stack, pytest.mark.rare]

PROMPTS = 10


def test_adapters_and_the_base_beside_them_answer_as_peft_and_vllm_do(tmp_path: Path) -> None:
    for row in prove(tmp_path, PROMPTS):
        assert row.holds, row
        assert row.peft[Verdict.EQUAL] >= PROMPTS - 1, row
        is_base = not row.unlike_base
        assert is_base == row.adapter.startswith("none"), row
