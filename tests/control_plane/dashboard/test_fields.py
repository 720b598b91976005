"""Fields of the pages' forms: what they take, and what they refuse."""

import pytest
from control_plane.dashboard.fields import LinesField, MomentField, PercentsField
from django.core.exceptions import ValidationError


def test_percentages_come_in_order_and_once() -> None:
    field = PercentsField(most=3)
    assert field.clean("100, 50%, 50") == [50, 100]
    assert field.clean("") == []
    for wrong in ("0", "1001", "50.5", "-1", "ten", "1 2 3 4"):
        with pytest.raises(ValidationError):
            field.clean(wrong)


def test_lines_are_bounded_and_none_is_none() -> None:
    assert LinesField().clean(" a \n\n b") == ["a", "b"]
    assert LinesField().clean(" \n ") is None
    with pytest.raises(ValidationError):
        LinesField().clean("\n".join(map(str, range(101))))


def test_moments_are_of_utc_and_those_beyond_the_calendar_are_refused() -> None:
    moment = MomentField().clean("2027-01-31T18:30")
    assert moment is not None and moment.isoformat() == "2027-01-31T18:30:00+00:00"
    for wrong in ("tomorrow", "9999-12-31T23:59:59-05:00", "2027-02-30T00:00"):
        with pytest.raises(ValidationError):
            MomentField().clean(wrong)
