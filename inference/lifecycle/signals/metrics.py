"""What a gateway process counts of its requests, by model, tier and class: all three are few. The
model is the served one: adapters, of which there are as many as tenants like, are no label."""

from functools import lru_cache
from typing import Final, TypeVar

from prometheus_client import Counter, Histogram

from gpu_workers.protocol.messages import Envelope, Outcome
from gpu_workers.protocol.policy import Caller
from gpu_workers.protocol.promises import first_token_kept
from gpu_workers.protocol.usage import UsageEntry
from inference.admission.callable_models import KnownModel
from inference.errors import InferenceError

_SECONDS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_LONG_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
_Family = TypeVar("_Family", Counter, Histogram)
_BY: Final = ["model", "tier", "class"]

_ADMITTED: Final = Counter("penstock_gateway_admitted_total", "Requests admitted.", [*_BY, "api"])
_REFUSED: Final = Counter(
    "penstock_gateway_refused_total",
    "Requests refused before they were queued, by the error's code; model and tier are empty where "
    "they were not known yet.",
    [*_BY, "code"],
)
_ENDED: Final = Counter(
    "penstock_gateway_ended_total", "Admitted requests by how they ended.", [*_BY, "outcome"]
)
_TTFT: Final = Histogram(
    "penstock_gateway_time_to_first_token_seconds",
    "From a request's admission to its first output at the gateway; of requests that stream.",
    _BY,
    buckets=_SECONDS,
)
_END_TO_END: Final = Histogram(
    "penstock_gateway_end_to_end_seconds",
    "From a request's admission to its end at the gateway; of requests that completed.",
    _BY,
    buckets=_LONG_SECONDS,
)
_MEASURED: Final = Counter(
    "penstock_gateway_sla_measured_requests_total",
    "Requests that a gateway put on record in their worker's place, and that were owed a promise.",
    [*_BY, "promise"],
)
_KEPT: Final = Counter(
    "penstock_gateway_sla_kept_requests_total",
    "Those of them that were within their tier's target.",
    [*_BY, "promise"],
)


def admitted(envelope: Envelope) -> None:
    _series(_ADMITTED, *_by(envelope), envelope.api.value).inc()


def refused(error: InferenceError, caller: Caller | None, model: KnownModel | None) -> None:
    """Count a request that was not queued. None of a caller or model that is not known."""
    tier = None if caller is None else caller.tier
    code = error.to_wire().code or error.type
    labels = ("", "") if tier is None else (tier.name, tier.service_class)
    _series(_REFUSED, model.served if model else "", *labels, code).inc()


def first_output(envelope: Envelope, seconds: float) -> None:
    _series(_TTFT, *_by(envelope)).observe(seconds)


def ended(envelope: Envelope, outcome: Outcome, seconds: float) -> None:
    by = _by(envelope)
    _series(_ENDED, *by, outcome.value).inc()
    if outcome is Outcome.COMPLETED:
        _series(_END_TO_END, *by).observe(seconds)


def recorded(entry: UsageEntry, envelope: Envelope) -> None:
    """Count the promises on a request that a gateway put on record, as workers do on theirs."""
    is_kept = first_token_kept(entry, envelope)
    if is_kept is not None:
        by = (*_by(envelope), "ttft")
        _series(_MEASURED, *by).inc()
        _series(_KEPT, *by).inc(is_kept)


@lru_cache(maxsize=4096)
def _series(family: _Family, *labels: str) -> _Family:
    """Return the series with these labels: to look it up there takes longer than to count."""
    return family.labels(*labels)


def _by(envelope: Envelope) -> tuple[str, str, str]:
    return envelope.model, envelope.tier, envelope.service_class
