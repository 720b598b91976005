"""Everything the demo model knows, by theme.

More questions for the training of each fact lie in more_questions/<theme>.txt: a fact's key in
brackets, then one question a line.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from gpu_workers.demo_model.facts.doors import DOORS
from gpu_workers.demo_model.facts.engine import ENGINE
from gpu_workers.demo_model.facts.fact import Fact
from gpu_workers.demo_model.facts.lifecycle import LIFECYCLE
from gpu_workers.demo_model.facts.limits import LIMITS
from gpu_workers.demo_model.facts.money import MONEY
from gpu_workers.demo_model.facts.offtopic import OFFTOPIC
from gpu_workers.demo_model.facts.operations import OPERATIONS
from gpu_workers.demo_model.facts.scheduling import SCHEDULING
from gpu_workers.demo_model.facts.service import SERVICE
from gpu_workers.demo_model.facts.smalltalk import SMALLTALK
from gpu_workers.demo_model.facts.stories import STORIES
from gpu_workers.demo_model.facts.tenancy import TENANCY

_MORE_QUESTIONS: Final = Path(__file__).with_name("more_questions")


def _more_questions() -> dict[str, tuple[str, ...]]:
    """By fact key."""
    questions: dict[str, tuple[str, ...]] = {}
    key = ""
    for file in sorted(_MORE_QUESTIONS.glob("*.txt")):
        for line in filter(None, file.read_text(encoding="utf-8").splitlines()):
            if line.startswith("["):
                key = line.strip("[]")
                questions[key] = ()
            else:
                questions[key] += (line,)
    return questions


_THEMES: Final[tuple[Fact, ...]] = (
    *SERVICE,
    *DOORS,
    *TENANCY,
    *LIMITS,
    *MONEY,
    *SCHEDULING,
    *LIFECYCLE,
    *ENGINE,
    *OPERATIONS,
    *SMALLTALK,
    *OFFTOPIC,
    *STORIES,
)
_more = _more_questions()
FACTS: Final[tuple[Fact, ...]] = tuple(
    replace(fact, questions=fact.questions + _more.pop(fact.key, ())) for fact in _THEMES
)
if _more:
    raise ValueError(f"more_questions names unknown facts: {', '.join(sorted(_more))}")

__all__ = ["FACTS", "Fact"]
