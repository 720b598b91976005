"""Who asks at the demo tenants, as their programs say it of each request. All names are made up."""

from typing import Final

# By which their projects' usage is recorded: docs/usage.md.
LABELS: Final = ("user", "metadata.feature")
USERS: Final = {
    "acme": ("ada", "bela", "chidi", "dana", "emre", "fay", "goran", "hana", "ines", "jun"),
    "globex": ("kofi", "lena", "mina", "nils", "olu", "pia", "quentin", "rosa"),
}
FEATURES: Final = ("search", "chat", "returns")


def demand(people: tuple[str, ...]) -> list[float]:
    """Return how much each of them asks, beside the others: the first one most."""
    return [1.0 / place for place in range(1, len(people) + 1)]
