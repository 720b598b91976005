"""Names that tenants choose are text in every file that a spreadsheet opens."""

import pytest

from tenants.spreadsheet import spreadsheet_cell


@pytest.mark.parametrize(
    "text", ["=cmd()", "+1+1", "-1-1", "@sum", "\t=1", "\r=1", "\n=1", "-.", "-"]
)
def test_text_that_begins_like_a_formula_is_none(text: str) -> None:
    assert spreadsheet_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["-1.50", "1.234567891", "penstock-demo", "a=b", "", -3, None])
def test_numbers_and_other_text_stay_as_they_are(value: object) -> None:
    assert spreadsheet_cell(value) == value
