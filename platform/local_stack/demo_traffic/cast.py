"""Who asks: the programs of both demo tenants, each with a project and a key of its own, and how
they ask. All names and questions are made up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from control_plane.demo.people import FEATURES, USERS

MICRO: Final = 1_000  # nano-dollars


class Model(StrEnum):
    """What a program asks; `demo` and `support` become this stack's names."""

    DEMO = "demo"
    SUPPORT = "support"  # the tenant's own adapter of the demo model
    SIMULATED = "sim"


class Mistake(StrEnum):
    """What a program gets wrong, and is refused for."""

    MODEL = "model"
    FIELD = "field"
    KEY = "key"
    LENGTH = "length"


@dataclass(frozen=True, kw_only=True)
class Program:
    """One program of a tenant, named as its key.

    `per_minute` are requests, before the hour's waves; `limits` are of its key, by their name in
    the API; `mistakes` is the share of its requests that are wrong; `gives_up` the share whose
    reader leaves in the middle.
    """

    tenant: str
    project: str
    name: str
    models: Mapping[Model, float]
    per_minute: float
    output_tokens: tuple[int, int]
    streams: bool = True
    users: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    mistakes: float = 0.0
    gives_up: float = 0.0
    floods: bool = False


PROGRAMS: Final = (
    Program(
        tenant="acme",
        project="shop",
        name="web shop",
        models={Model.DEMO: 0.4, Model.SUPPORT: 0.6},
        per_minute=10,
        output_tokens=(16, 64),
        users=USERS["acme"],
        features=FEATURES,
        gives_up=0.08,
    ),
    Program(
        tenant="acme",
        project="shop",
        name="mobile app",
        models={Model.SIMULATED: 1.0},
        per_minute=60,
        output_tokens=(20, 160),
        users=USERS["acme"],
        features=("chat", "suggestions"),
        gives_up=0.12,
    ),
    Program(
        tenant="acme",
        project="research",
        name="notebook",
        models={Model.DEMO: 0.3, Model.SIMULATED: 0.7},
        per_minute=20,
        output_tokens=(60, 400),
        streams=False,
        users=("ada", "ines"),
        mistakes=0.4,
    ),
    Program(
        tenant="acme",
        project="research",
        name="trial",
        models={Model.SIMULATED: 1.0},
        per_minute=9,
        output_tokens=(10, 40),
        limits={"requests_per_minute": 4},
    ),
    Program(
        tenant="globex",
        project="helpdesk",
        name="helpdesk",
        models={Model.DEMO: 0.3, Model.SUPPORT: 0.7},
        per_minute=8,
        output_tokens=(16, 64),
        users=USERS["globex"],
        features=("first answer", "summary"),
        gives_up=0.05,
    ),
    Program(
        tenant="globex",
        project="reports",
        name="nightly reports",
        models={Model.SIMULATED: 1.0},
        per_minute=40,
        output_tokens=(100, 500),
        streams=False,
        features=("finance", "stock", "press"),
        limits={"concurrent_requests": 32},
        floods=True,
    ),
    Program(
        tenant="globex",
        project="reports",
        name="intern",
        models={Model.SIMULATED: 1.0},
        per_minute=6,
        output_tokens=(40, 200),
        users=("pia",),
        limits={"spend_per_day": 1_500 * MICRO},
        mistakes=0.1,
    ),
)

_QUESTIONS: Final = {
    Model.DEMO: (
        "What is Penstock?",
        "What happens when a worker dies?",
        "In what unit is money counted?",
        "How does a tenant get an API key?",
        "Who runs next when many wait?",
        "Can I watch tokens arrive?",
    ),
    Model.SUPPORT: (
        "When are you open?",
        "What is your phone number?",
        "How can I send something back?",
        "Do you deliver abroad?",
        "Where is my parcel?",
    ),
    Model.SIMULATED: (
        "Summarize the figures of this week in five lines.",
        "Write a friendly reminder about an open invoice.",
        "Which of these tickets are about the same problem?",
        "Suggest three titles for a page about returns.",
        "Translate this message for the team in the warehouse.",
    ),
}


def questions_for(model: Model) -> tuple[str, ...]:
    """Return what is asked of a model."""
    return _QUESTIONS[model]


def spoiled(body: dict[str, Any], mistake: Mistake) -> dict[str, Any]:
    """Return a request that is refused for this mistake; a wrong key is not in its body."""
    match mistake:
        case Mistake.MODEL:
            return body | {"model": "gpt-4"}
        case Mistake.FIELD:
            return body | {"max_token": 20}
        case Mistake.LENGTH:
            return body | {"max_tokens": 1_000_000}
        case Mistake.KEY:
            return body
