import pytest

from tenants.money import decimal_dollars, dollars


@pytest.mark.parametrize(
    ("nanos", "shown", "decimal", "exact"),
    [
        (0, "$0.00", "0.00", "0.000000000"),
        (12_500_000_000, "$12.50", "12.50", "12.500000000"),
        (-125_000, "-$0.000125", "-0.000125", "-0.000125000"),
        (1_234_567_890_000_000_001, "$1,234,567,890.000000001", *["1234567890.000000001"] * 2),
    ],
)
def test_an_amount_is_exact_for_people_and_for_programs(
    nanos: int, shown: str, decimal: str, exact: str
) -> None:
    assert dollars(nanos) == shown
    assert decimal_dollars(nanos) == decimal
    assert decimal_dollars(nanos, digits=9) == exact
