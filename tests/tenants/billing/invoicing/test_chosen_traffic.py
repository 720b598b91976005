"""What a tenant may legally send to be paid for it: no choice of its own earns an SLA credit, and
an outage that is the service's pays in full."""

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from gpu_workers.protocol.messages import Outcome, TokenUsage
from tenants.billing.invoicing.drafts import draft_invoice
from tenants.billing.models import InvoiceLine, LineKind
from tenants.models import Project, Tier
from tests.support.billing.billed_usage import DEAR, FREE, OCTOBER, hours_of, use, use_at

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("seller")]

MONTH_HOURS = 744
OUTAGE = range(40)
OF_HALF_A_SECOND = {"ttft_ms": 501}
DOWN: dict[str, Any] = {"outcome": Outcome.EXPIRED, "ttft_ms": None, "itl_p95_ms": None}
SHORT = TokenUsage(prompt_tokens=10, cached_tokens=4, completion_tokens=2)
LONG = TokenUsage(prompt_tokens=10, cached_tokens=4, completion_tokens=21)


@pytest.fixture(autouse=True)
def _promise(acme: Project) -> None:
    Tier.objects.filter(name="premium").update(
        ttft_target_ms=500, inter_token_target_ms=50, uptime_percent=Decimal("99.5")
    )


def used(project: Project, moments: Iterable[datetime], **changes: Any) -> None:
    """Requests that cost nothing: what is credited is what one dear request cost."""
    use_at(project, moments, **({"prices": FREE} | changes))


def credited(project: Project) -> list[InvoiceLine]:
    """The lines of SLA credits on October's draft, of which a dear request at noon is the rest."""
    use(project, prices=DEAR)
    draft = draft_invoice(project.tenant, OCTOBER)
    assert draft is not None
    return list(draft.lines.filter(kind=LineKind.SLA_CREDIT))


# The service's fault ------------------------------------------------------------------------------


def test_an_outage_of_forty_hours_pays_for_the_month(acme: Project) -> None:
    used(acme, hours_of(OCTOBER, range(40, MONTH_HOURS)))
    used(acme, hours_of(OCTOBER, OUTAGE), **DOWN)
    (line,) = credited(acme)
    assert (line.promise, line.credit_percent, line.model) == ("uptime", 100, "penstock-demo")
    # One request more at noon makes an hour with one of them a little less than the mean.
    assert float(line.measured_percent or 0) == pytest.approx(100 * 704 / 744, abs=0.01)


def test_an_hour_in_which_little_was_owed_is_down_whole_where_much_of_it_failed(
    acme: Project,
) -> None:
    """While no worker is left a tenant's share waits to its deadline, and nothing else of it is
    owed: 30 requests an hour, of one that has 100 else."""
    used(acme, hours_of(OCTOBER, range(40, 55), 100))
    used(acme, hours_of(OCTOBER, range(4), 30), **DOWN)
    (line,) = credited(acme)
    assert line.measured_percent == (Decimal(100) * 740 / MONTH_HOURS).quantize(Decimal("1e-6"))


def test_who_hangs_up_on_an_answer_that_is_late_was_not_answered_in_time(acme: Project) -> None:
    used(acme, hours_of(OCTOBER, range(80), 2), outcome=Outcome.CANCELLED, ttft_ms=None)
    (line,) = credited(acme)
    assert (line.promise, line.credit_percent) == ("ttft", 25)


# The tenant's choice ------------------------------------------------------------------------------


def test_what_waits_behind_the_tenants_own_excess_earns_nothing(acme: Project) -> None:
    used(acme, hours_of(OCTOBER, OUTAGE, 30), owed=False, **DOWN)
    used(acme, hours_of(OCTOBER, range(40, 80), 30), owed=False, ttft_ms=60_000)
    assert credited(acme) == []


def test_sending_only_in_bad_hours_earns_no_more_than_they_are_of_the_month(acme: Project) -> None:
    used(acme, hours_of(OCTOBER, range(3), 50), **DOWN, owed=True)
    assert credited(acme) == []


def test_one_request_in_an_hour_does_not_weigh_as_much_as_a_thousand(acme: Project) -> None:
    """Two an hour on average, and one that failed in each of four hours with nothing else."""
    used(acme, hours_of(OCTOBER, range(40, 140), 15))
    used(acme, hours_of(OCTOBER, range(4)), **DOWN)
    assert credited(acme) == []


def test_a_few_requests_in_a_month_prove_nothing(acme: Project) -> None:
    used(acme, hours_of(OCTOBER, range(98)), **DOWN)
    assert credited(acme) == []


def test_long_prompts_earn_nothing_for_the_time_that_they_take(acme: Project) -> None:
    long = TokenUsage(prompt_tokens=2_405, cached_tokens=4, completion_tokens=5)
    used(acme, hours_of(OCTOBER, range(80), 2), usage=long, **OF_HALF_A_SECOND)
    assert credited(acme) == []


def test_what_of_a_long_prompt_was_cached_takes_no_time(acme: Project) -> None:
    cached = TokenUsage(prompt_tokens=2_405, cached_tokens=1_000, completion_tokens=5)
    used(acme, hours_of(OCTOBER, range(80), 2), usage=cached, **OF_HALF_A_SECOND)
    assert [line.promise for line in credited(acme)] == ["ttft"]


@pytest.mark.parametrize(("tokens", "promises"), [(SHORT, []), (LONG, ["inter_token"])])
def test_a_gap_or_two_is_no_percentile(
    acme: Project, tokens: TokenUsage, promises: list[str]
) -> None:
    used(acme, hours_of(OCTOBER, range(80), 2), usage=tokens, itl_p95_ms=51.0)
    assert [line.promise for line in credited(acme)] == promises


@pytest.mark.parametrize("code", ["adapter_refused", "structure_too_costly", "attempts_exhausted"])
def test_what_a_request_did_to_itself_is_nobodys_outage(acme: Project, code: str) -> None:
    down = DOWN | {"outcome": Outcome.FAILED, "error_code": code}
    used(acme, hours_of(OCTOBER, OUTAGE, 30), **down)
    assert credited(acme) == []


def test_who_hangs_up_at_once_has_not_waited(acme: Project) -> None:
    for moment in hours_of(OCTOBER, range(80), 2):
        finished_ms = int(moment.timestamp() * 1000) + 400
        used(acme, [moment], outcome=Outcome.CANCELLED, ttft_ms=None, finished_at_ms=finished_ms)
    assert credited(acme) == []


def test_a_model_that_fails_pays_for_itself_alone(acme: Project) -> None:
    """Requests for next to nothing to a model that is known to fail buy nothing elsewhere."""
    used(acme, hours_of(OCTOBER, OUTAGE, 10), model="broken", **DOWN)
    assert credited(acme) == []


def test_a_target_that_is_lowered_afterwards_breaks_no_promise(acme: Project) -> None:
    used(acme, hours_of(OCTOBER, range(80), 2), ttft_ms=400)
    Tier.objects.filter(name="premium").update(ttft_target_ms=300)
    assert credited(acme) == []
