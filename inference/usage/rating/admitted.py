"""Whether an entry of a usage stream says what its gateway has admitted, and no more than that has
reserved. Who wrote it is not believed: a worker can be anybody's who got into it (docs/adr/0041).

Entries of requests that a gateway of before proofs has admitted have none. They are taken for as
long as an outbox may keep them, rated by the price book.
"""

from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from django.conf import settings

from gpu_workers.protocol.messages import Prices
from gpu_workers.protocol.usage import UsageEntry, WasteEntry
from inference.charges import actual, is_charged
from inference.models import ServedModel, UsageProofStart
from inference.models.usage import QuarantineCause
from inference.proofs import Prover
from inference.usage.partitions import moment
from inference.usage.rating.price_book import PriceBook

# For so long a worker that was away keeps what it has not been given a receipt for.
UNPROVEN_FOR: Final = timedelta(days=7)
# How far a gateway may have been behind the price book.
_LAG: Final = timedelta(seconds=60)
# Choices that one request may have, over all its prompts.
_MOST_CHOICES: Final = 16


class Distrusted(ValueError):
    """An entry that says what no gateway can have admitted; with both figures."""

    def __init__(self, cause: QuarantineCause, reason: str) -> None:
        super().__init__(reason)
        self.cause = cause


def deployment_prover() -> Prover:
    """Return the prover of the gateways of this deployment."""
    return Prover(settings.PENSTOCK_API_KEY_PEPPER, settings.PENSTOCK_PREVIOUS_API_KEY_PEPPERS)


class AdmissionCheck:
    """Judges the entries of one batch. Runs in an `operator_scope`."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._prover = deployment_prover()

    def check(self, entry: UsageEntry, made_ms: int) -> None:
        """Raise `Distrusted`. `made_ms`: the time in the request id."""
        if self._prover.is_proven(entry):
            self._check_tokens(entry, entry.prompt_bound, entry.output_bound)
        elif entry.proof or not self._may_be_unproven(made_ms):
            raise Distrusted(
                QuarantineCause.UNPROVEN,
                "no gateway has admitted what it says: "
                + self._figures(entry, self._prices(entry, moment(entry.arrived_at_ms))),
            )
        else:
            self._check_unproven(entry)

    def check_waste(self, entry: WasteEntry, made_ms: int) -> None:
        """Raise `Distrusted`."""
        if self._prover.is_owner_proven(entry):
            _check_bound(
                "wasted tokens",
                max(entry.completion_tokens, entry.generated_tokens or 0),
                entry.output_bound,
            )
        elif entry.proof or not self._may_be_unproven(made_ms):
            raise Distrusted(
                QuarantineCause.UNPROVEN,
                f"no gateway has admitted what {entry.completion_tokens} tokens were wasted of",
            )

    def _check_tokens(self, entry: UsageEntry, prompt_bound: int, output_bound: int) -> None:
        usage = entry.usage
        if is_charged(entry.outcome):  # a worker refuses what is longer, and says how long it is
            _check_bound("prompt tokens", usage.prompt_tokens, prompt_bound)
        _check_bound("completion tokens", usage.completion_tokens, output_bound)
        _check_bound("wasted tokens", entry.wasted_tokens, output_bound)
        _check_bound("generated tokens", entry.generated_tokens or 0, output_bound)

    def _may_be_unproven(self, made_ms: int) -> bool:
        start = self._proof_start
        return start is not None and moment(made_ms) < start and self._now < start + UNPROVEN_FOR

    def _check_unproven(self, entry: UsageEntry) -> None:
        served = self._served.get(entry.model)
        if served is None or served.pool_id != entry.pool:
            raise Distrusted(
                QuarantineCause.UNPROVEN,
                f"the pool {entry.pool} does not serve {entry.model!r}: "
                + ("no pool does" if served is None else f"{served.pool_id} does"),
            )
        most = served.context_tokens * _MOST_CHOICES
        self._check_tokens(entry, most, most)
        arrived = moment(entry.arrived_at_ms)
        held = [self._prices(entry, at) for at in (arrived, arrived - _LAG)]
        if entry.prices not in held:
            figures = self._figures(entry, held[0])
            raise Distrusted(QuarantineCause.PRICES, f"not at the prices that held: {figures}")

    def _figures(self, entry: UsageEntry, prices: Prices) -> str:
        claimed, rated = (
            actual(entry.outcome, entry.usage, each).nanos for each in (entry.prices, prices)
        )
        return f"it claims {claimed} nano-dollars, and by the price book it would be {rated}"

    def _prices(self, entry: UsageEntry, at: datetime) -> Prices:
        return self._book.prices(
            model=entry.model,
            adapter=entry.adapter,
            tier=entry.tier,
            service_class=entry.service_class,
            at=at,
        )

    @cached_property
    def _book(self) -> PriceBook:
        return PriceBook(with_corrections=False)

    @cached_property
    def _served(self) -> dict[str, ServedModel]:
        return {model.name: model for model in ServedModel.objects.all()}

    @cached_property
    def _proof_start(self) -> datetime | None:
        return UsageProofStart.objects.values_list("at", flat=True).first()


def _check_bound(what: str, claimed: int, bound: int) -> None:
    if claimed > bound:
        raise Distrusted(
            QuarantineCause.BEYOND_RESERVATION,
            f"it claims {claimed} {what}, and {bound} were reserved",
        )
