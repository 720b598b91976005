"""Operators rate a tenant's past usage anew: the days, what would be posted, the posting."""

import pytest
from django.test import Client
from django.urls import reverse

from tenants.billing.models import LedgerTransaction, TransactionKind
from tenants.isolation.scoping import operator_scope
from tenants.models import Project
from tenants.money import dollars
from tests.control_plane.operator_site.records import somebody_who_may
from tests.support.billing.billed_usage import DEAR, use
from tests.support.projects import make_project

pytestmark = pytest.mark.django_db
OCTOBER = {"sure": "yes", "first": "2026-10-01", "last": "2026-10-31"}
UNDERSTOOD = {"understood": "yes"}


@pytest.fixture
def acme() -> Project:
    with operator_scope("test"):
        return make_project("Acme", "premium")


@pytest.fixture
def overcharged(acme: Project) -> int:
    """What Acme was charged for a model that the price book does not price."""
    with operator_scope("test"):
        return use(acme, times=2, prices=DEAR)


def page(acme: Project) -> str:
    return reverse("admin:rerate", args=[acme.tenant_id])


def posted(acme: Project) -> list[LedgerTransaction]:
    with operator_scope("test"):
        return list(
            LedgerTransaction.objects.filter(
                tenant=acme.tenant_id, kind=TransactionKind.RE_RATING
            ).prefetch_related("entries")
        )


def test_differences_are_shown_before_they_are_posted_once(
    operator: Client, acme: Project, overcharged: int
) -> None:
    shown = operator.post(page(acme), OCTOBER).content.decode()
    assert f"{dollars(overcharged)} less in all, of 1 day that differs." in shown
    assert posted(acme) == []
    its_own = reverse("admin:tenants_tenant_change", args=[acme.tenant_id])
    for _ in range(2):
        answer = operator.post(page(acme), OCTOBER | UNDERSTOOD)
        assert answer["Location"] == its_own
    (transaction,) = posted(acme)
    assert (transaction.actor_kind, transaction.size_nanos) == ("user", overcharged)
    nothing = operator.post(page(acme), OCTOBER, follow=True)
    assert "Nothing to post" in nothing.content.decode()


@pytest.mark.parametrize(
    ("days", "says"),
    [
        ({"last": "2999-01-01"}, "Choose a day that is over."),
        ({"last": "2026-09-30"}, "Choose the first day or a later one."),
        ({"first": "2026-01-01"}, "Choose at most 31 days"),
        ({"first": "soon"}, "Enter a valid date."),
    ],
)
def test_days_that_cannot_be_rated_are_told_on_the_form(
    operator: Client, acme: Project, days: dict[str, str], says: str
) -> None:
    answer = operator.post(page(acme), OCTOBER | days | UNDERSTOOD)
    assert answer.status_code == 200
    assert says in answer.content.decode()
    assert posted(acme) == []


def test_who_may_only_look_rates_nothing(client: Client, acme: Project, overcharged: int) -> None:
    client.force_login(somebody_who_may("view_tenant", "view_ledgertransaction"))
    assert client.post(page(acme), OCTOBER | UNDERSTOOD).status_code in (302, 403)
    assert posted(acme) == []
