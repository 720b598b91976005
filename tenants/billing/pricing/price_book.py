"""Entering what holds for a period: prices, and what GPUs cost. Nothing is changed in place; what
holds until then ends where the new one begins."""

import uuid
from collections.abc import Callable, Iterable
from copy import copy
from datetime import datetime, timedelta
from typing import Final, TypeVar

from django.core.exceptions import ValidationError
from django.db import connection, models, transaction
from django.db.models.expressions import DatabaseDefault

from tenants.billing.models import PoolCost, Price, StoragePrice

_Dated = TypeVar("_Dated", Price, PoolCost, StoragePrice)

# What takes another's place does so a little later, when every gateway has been told.
LEAD: Final = timedelta(seconds=5)
_PLACE: Final[dict[type[models.Model], tuple[str, ...]]] = {
    Price: ("model", "tier", "adapter"),
    PoolCost: ("pool",),
    StoragePrice: (),
}


ModelNames = Callable[[], Iterable[str]]
_model_names: list[ModelNames] = []


def register_model_names(source: ModelNames) -> None:
    """Say which models are served. The catalogue stands on a floor above this one, so it registers
    itself when its app is ready."""
    if source not in _model_names:
        _model_names.append(source)


def priced_models() -> list[str]:
    """Return the models that a price may be for, in order: those of the catalogue, enabled or not,
    and those that had one."""
    served = {name for source in _model_names for name in source()}
    return sorted(served.union(Price.objects.order_by().values_list("model", flat=True).distinct()))


def enter(row: _Dated) -> _Dated:
    """Enter what holds from `effective_from` on, or from now. The one that is open then ends there.
    Raises `ValidationError`: it begins in the past, or another one holds in its period."""
    with transaction.atomic():
        before = _open_before(row)
        now = _now()
        begin = row.effective_from
        if begin is None or isinstance(begin, DatabaseDefault):
            # A price must not hold before the gateways know of it.
            begin = row.effective_from = now if before is None else now + LEAD
        if begin < now:
            what = "It would begin in the past. What was charged stays; what should have been is a "
            past = ValidationError(f"{what}correction.", code="in_past")
            raise ValidationError({"effective_from": past})
        if before is not None and before.effective_from <= begin:
            _close(before, begin)
        row.full_clean()
        row.save()
    return row


def check(row: _Dated) -> None:
    """Raise what `enter` would, and enter nothing."""
    with transaction.atomic():
        entered = copy(row)
        entered.id = uuid.uuid4()
        try:
            enter(entered)
        finally:
            transaction.set_rollback(True)


def end(row: _Dated, at: datetime | None = None) -> None:
    """Close an open period, now or later. Raises `ValidationError`."""
    now = _now()
    at = at or now
    if row.effective_until is not None:
        raise ValidationError(
            "It ends at %(until)s already.",
            code="already_ended",
            params={"until": row.effective_until},
        )
    if at < now or at < row.effective_from:
        raise ValidationError(
            "A period ends in the future, and not before it begins.", code="in_past"
        )
    _close(row, at)


def consequence_of_ending(price: Price, at: datetime | None = None) -> str:
    """Say what ending a price does, as the end of a sentence that begins with "This": which price
    applies then, or that nothing is charged."""
    when = "now" if at is None else f"on {at:%d %B %Y, %H:%M} UTC"
    place = " and ".join(
        part
        for part in (
            price.tier and f"tier {price.tier}",
            price.adapter and f"adapter {price.adapter}",
        )
        if part
    )
    if place and open_price(price.model):
        return f"ends the price of {price.model} for {place} {when}; its general price applies then"
    whose = f"{price.model} for {place}" if place else price.model
    return f"makes {whose} free {when}, as no other price applies"


def open_price(model: str, tier: str = "", adapter: str = "") -> Price | None:
    """Return the price without an end."""
    return _open_before(Price(model=model, tier=tier, adapter=adapter))


def _close(row: _Dated, at: datetime) -> None:
    row.effective_until = at
    row.save(update_fields=["effective_until"])


def _open_before(row: _Dated) -> _Dated | None:
    place = {name: getattr(row, name) for name in _PLACE[type(row)]}
    rows = type(row)._default_manager.select_for_update()
    return rows.filter(effective_until=None, **place).first()


def _now() -> datetime:
    """Return PostgreSQL's time, by which its triggers judge."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
        return now
