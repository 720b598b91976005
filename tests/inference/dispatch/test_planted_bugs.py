"""The state machine of dispatch finds what it is there to find."""

import pytest

from tests.support.dispatch.planted_bugs import BUGS, PlantedBug, is_found


@pytest.mark.rare
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "_"))
def test_the_state_machine_finds(bug: PlantedBug) -> None:
    assert is_found(bug)
