"""What a tenant used in the month that runs."""

from datetime import date

import pytest

from inference.usage.month_to_date import month_to_date
from tenants.isolation.scoping import tenant_scope
from tests.support.two_tenants import COST_NANOS, TwoTenants

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("today", "cost", "before"),
    [
        (date(2026, 1, 1), 0, 0),
        (date(2026, 1, 2), COST_NANOS, 0),
        (date(2026, 1, 31), COST_NANOS, 0),
        (date(2026, 2, 1), 0, 0),
        (date(2026, 2, 2), 0, COST_NANOS),
        (date(2026, 2, 28), 0, COST_NANOS),
        (date(2026, 3, 31), 0, 0),
    ],
)
def test_it_is_compared_with_the_same_days_of_the_month_before(
    today: date, cost: int, before: int, houses: TwoTenants
) -> None:
    with tenant_scope(houses.acme.tenant.id):
        month = month_to_date(today)
    assert (month.cost_nanos, month.before_nanos) == (cost, before)


def test_it_is_told_by_project_and_model(houses: TwoTenants) -> None:
    with tenant_scope(houses.acme.tenant.id):
        (share,) = month_to_date(date(2026, 1, 15)).shares
    assert (share.project, share.model) == (houses.acme.project, houses.acme.model.name)
    assert (share.requests, share.cost_nanos) == (1, COST_NANOS)
