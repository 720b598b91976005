"""The state machine of dispatch finds what it is there to find."""

import pytest

from tests.support.dispatch.planted_bugs import BUGS, SELDOM_FOUND, PlantedBug, is_found


@pytest.mark.parametrize("bug", [*BUGS, *SELDOM_FOUND], ids=lambda bug: bug.name.replace(" ", "_"))
def test_it_can_be_planted(bug: PlantedBug) -> None:
    assert bug.planted()


@pytest.mark.rare
@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(
            bug,
            id=bug.name.replace(" ", "_"),
            marks=[pytest.mark.dear] if bug.is_dear else [],
        )
        for bug in BUGS
    ],
)
def test_the_state_machine_finds(bug: PlantedBug) -> None:
    assert is_found(bug)
