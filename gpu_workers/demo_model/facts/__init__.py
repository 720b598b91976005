"""Everything the demo model knows, by theme."""

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

FACTS: Final[tuple[Fact, ...]] = (
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

__all__ = ["FACTS", "Fact"]
