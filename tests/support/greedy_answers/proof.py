"""Answers by adapters of a whole Penstock, held against PEFT's and those of vLLM's own server.

All in float32. The worker has as many adapter slots as there are adapters, all of them full, and
base requests beside them; whoever asks waits for nobody. vLLM's own server has one slot more: on
hosts without a GPU vLLM 0.32 answers base requests by the adapter of the last slot (vLLM issue
48421), so there that one stays empty.
"""

import asyncio
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpu_workers.demo_model import MODEL_FOLDER
from gpu_workers.demo_model.voices import ADAPTERS_FOLDER
from tests.support.greedy_answers.asking import Server, ask_all
from tests.support.greedy_answers.compared import (
    Answer,
    Reference,
    Verdict,
    compare,
    compare_shown,
    counted,
    largest_gap,
)
from tests.support.greedy_answers.putting_in import put_in
from tests.support.greedy_answers.questions import BASE, Asked, asked_of
from tests.support.live_stack import run_live_stack
from tests.support.places import ROOT
from tests.support.reference_vllm import ENGINE_PYTHON, reference_vllm
from tests.support.stack_addresses import LiveStack

MAX_TOKENS: Final = 96
AT_ONCE: Final = 64
SLOTS: Final = 4
# What PEFT can ask for besides the plain LoRA of the demo's two: ranks and alphas by module, with
# keys of each kind; rsLoRA; a part of the modules, and of the layers.
MADE: Final[dict[str, dict[str, Any]]] = {
    "patterned": {
        "seed": 11,
        "strength": 0.2,
        "r": 8,
        "lora_alpha": 16,
        "target_modules": ["q_proj", "v_proj", "down_proj"],
        "rank_pattern": {"down_proj": 4, "model.layers.1.self_attn.q_proj": 2},
        "alpha_pattern": {"v_proj": 4, "layers.2.mlp.down_proj": 12},
    },
    "stabilized": {
        "seed": 12,
        "strength": 0.17,
        "r": 16,
        "lora_alpha": 6,
        "use_rslora": True,
        "target_modules": ["o_proj", "gate_proj", "up_proj"],
        "layers_to_transform": [0, 2, 3],
    },
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """What came of one adapter's questions; `unlike_base` are those of its answers that the base
    gives otherwise. `plain` are streams as any client asks for them, the others come with the ids
    and log-probabilities of their tokens."""

    adapter: str
    prompts: int
    tokens: int
    unlike_base: int
    peft: dict[Verdict, int]
    vllm: dict[Verdict, int]
    plain: dict[Verdict, int]
    largest_gap: float

    @property
    def holds(self) -> bool:
        """Return whether nothing differs, near-ties aside."""
        return not any(each[Verdict.DIFFERENT] for each in (self.peft, self.vllm, self.plain))


@dataclass(frozen=True, kw_only=True)
class _Side:
    """One server's answers, in the order of the questions."""

    detailed: list[Answer]
    plain: list[Answer]


def prove(folder: Path, prompts: int) -> list[Row]:
    """Ask each adapter, and the base, so many questions on every side; `folder` is for what is
    made on the way."""
    _by_peft("make", str(folder), given=MADE)
    folders = {
        "acme": ADAPTERS_FOLDER / "acme-support",
        "globex": ADAPTERS_FOLDER / "globex-support",
        **{name: folder / name for name in MADE},
    }
    asked = asked_of([BASE, *folders], prompts)
    with run_live_stack(PENSTOCK_DTYPE="float32", PENSTOCK_ADAPTER_SLOTS=str(SLOTS)) as stack:
        model = stack.model
        ours = asyncio.run(_ask(_penstock(stack, folders), asked))
    arguments = _vllm_arguments(folders)
    log = folder / "vllm.log"
    with reference_vllm(MODEL_FOLDER, model, log, max_num_seqs=128, arguments=arguments) as server:
        keys = dict.fromkeys([BASE, *folders], "none")
        names = {BASE: model} | {name: name for name in folders}
        theirs = asyncio.run(_ask(Server(url=server.url, models=names, keys=keys), asked))
    given = {
        "folders": {name: str(path) for name, path in folders.items()},
        "asked": [(each.adapter, each.messages) for each in asked],
        "max_tokens": MAX_TOKENS,
    }
    references = [Reference.of(each) for each in json.loads(_by_peft("answer", given=given))]
    return [_row(name, asked, ours, theirs, references) for name in [BASE, *folders]]


def _penstock(stack: LiveStack, folders: Mapping[str, Path]) -> Server:
    """Put the made adapters in, one for each tenant."""
    tenants = {"patterned": stack.acme_key, "stabilized": stack.globex_key}
    made = {name: put_in(stack, key, name, folders[name]) for name, key in tenants.items()}
    return Server(
        url=stack.url,
        models={BASE: stack.model, "acme": "acme/support", "globex": "globex/support"} | made,
        keys={BASE: stack.acme_key, "acme": stack.acme_key, "globex": stack.globex_key} | tenants,
    )


def _vllm_arguments(folders: Mapping[str, Path]) -> list[str]:
    return [
        *("--dtype", "float32"),
        *("--enable-lora", "--max-lora-rank", "16", "--max-loras", str(len(folders) + 1)),
        *("--lora-modules", *(f"{name}={path}" for name, path in folders.items())),
    ]


async def _ask(server: Server, asked: list[Asked]) -> _Side:
    options: dict[str, Any] = {"max_tokens": MAX_TOKENS, "at_once": AT_ONCE}
    return _Side(
        detailed=await ask_all(server, asked, streams=False, **options),
        plain=await ask_all(server, asked, streams=True, **options),
    )


def _by_peft(*arguments: str, given: Any) -> str:
    command = [str(ENGINE_PYTHON), "-m", "tests.support.greedy_answers.by_peft", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, input=json.dumps(given), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def _row(
    adapter: str, asked: list[Asked], ours: _Side, theirs: _Side, references: list[Reference]
) -> Row:
    places = [place for place, each in enumerate(asked) if each.adapter == adapter]
    of_base = {
        each.conversation: ours.detailed[place].text
        for place, each in enumerate(asked)
        if each.adapter == BASE
    }
    mine = [ours.detailed[place] for place in places]
    others = [references[place].answer for place in places]
    pairs = list(zip(mine, others, strict=True))
    return Row(
        adapter=adapter or "none: the base",
        prompts=len(places),
        tokens=sum(answer.completion_tokens for answer in mine),
        unlike_base=sum(
            ours.detailed[place].text != of_base[asked[place].conversation] for place in places
        ),
        peft=counted(compare(one, other) for one, other in pairs),
        vllm=counted(compare(ours.detailed[place], theirs.detailed[place]) for place in places),
        plain=counted(
            compare_shown(ours.plain[place], theirs.plain[place], references[place])
            for place in places
        ),
        largest_gap=max(largest_gap(one, other) for one, other in pairs),
    )
