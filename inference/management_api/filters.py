"""What lists can be narrowed by, as django-filter has it: a `FilterSet` for each resource, a view's
`filterset_class`. Parameters that are nobody's are refused by the view (`ManagementViewSet.query`).

A page uses the same, with its form for the fields:

    wanted = ApiKeyFilter(request.GET, queryset=ApiKey.objects.all())
    if wanted.is_valid():
        found = page(wanted.qs, wanted.order(API_KEYS_ORDER), limit=50, cursor=cursor)
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import django_filters
from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django_filters.rest_framework import DjangoFilterBackend
from django_filters.utils import translate_validation
from rest_framework import serializers
from rest_framework.request import Request

from gpu_workers.protocol.messages import Outcome
from gpu_workers.protocol.policy import QUOTA_NAMES
from inference.models.adapter import AdapterState
from tenants.access.key_lists import KeyState, has_state
from tenants.billing.models.invoice import InvoiceState
from tenants.billing.models.ledger import TransactionKind
from tenants.isolation.audit_actor import ActorKind
from tenants.models import ApiKey, InvitationState, Quota
from tenants.pagination import Order
from tenants.permissions import Role
from tenants.webhooks.event_types import EventType
from tenants.webhooks.models.delivery import DeliveryState

_Rows = QuerySet[Any, Any]

_MAX_CHARACTERS: Final = 200


class ListFilterBackend(DjangoFilterBackend):  # type: ignore[misc]
    """DRF's way in. Narrows lists; one record is found by its id alone."""

    def filter_queryset(self, request: Request, queryset: _Rows, view: Any) -> _Rows:
        """Raises `ValidationError` by parameter; one without a value is no wish for all."""
        filterset = self.get_filterset(request, queryset, view) if view.action == "list" else None
        if filterset is None:
            return queryset
        empty = [name for name in filterset.filters if request.query_params.get(name) == ""]
        if empty:
            raise serializers.ValidationError(
                dict.fromkeys(empty, "expected a value, or no such parameter.")
            )
        if not filterset.is_valid():
            raise translate_validation(filterset.errors)
        narrowed: _Rows = filterset.qs
        return narrowed


class ListFilter(django_filters.FilterSet):  # type: ignore[misc]
    def order(self, order: Order) -> Order:
        """Return the list's order with cursors that belong to these filters alone: behind the row
        where one narrowed list was left, another has other rows."""
        return bound_order(order, self.data, self.filters)


def bound_order(order: Order, given: Mapping[str, Any], names: Iterable[str]) -> Order:
    told = [(name, str(given[name])) for name in sorted(names) if given.get(name)]
    return replace(order, name=f"{order.name} with {told}") if told else order


class _MomentField(forms.Field):
    """A moment with its offset from UTC, or a day, which begins at midnight UTC."""

    def to_python(self, value: Any) -> datetime | None:
        text = str(value or "").strip()
        try:
            day = parse_date(text) if len(text) == len("2030-01-31") else None
            moment = datetime(day.year, day.month, day.day, tzinfo=UTC) if day else None
            moment = moment or parse_datetime(text)
            if text and (moment is None or moment.tzinfo is None):
                raise ValueError
            return moment.astimezone(UTC) if moment else None
        except (ValueError, OverflowError):
            raise ValidationError(
                "expected a date and time as 2030-01-31T12:00:00Z, or a day as 2030-01-31."
            ) from None


class MomentFilter(django_filters.IsoDateTimeFilter):  # type: ignore[misc]
    field_class = _MomentField


def _one_of(values: Iterable[str], **options: Any) -> Any:
    known = [str(value) for value in values]
    return django_filters.ChoiceFilter(
        choices=[(value, value) for value in known],
        error_messages={
            "invalid_choice": f"expected one of {', '.join(known)}; got '%(value).80s'."
        },
        **options,
    )


def _id(**options: Any) -> Any:
    return django_filters.UUIDFilter(error_messages={"invalid": "expected a UUID."}, **options)


def _text(**options: Any) -> Any:
    return django_filters.CharFilter(max_length=_MAX_CHARACTERS, **options)


def _contains(field: str) -> Any:
    return _text(field_name=field, lookup_expr="icontains")


def _since(field: str) -> Any:
    return MomentFilter(field_name=field, lookup_expr="gte")


def _before(field: str) -> Any:
    return MomentFilter(field_name=field, lookup_expr="lt")


def _search(rows: _Rows, text: str, *fields: str) -> _Rows:
    found = Q()
    for field in fields:
        found |= Q(**{f"{field}__icontains": text})
    return rows.filter(found)


class ProjectFilter(ListFilter):
    name = _contains("name")
    search = _contains("name")


class ApiKeyFilter(ListFilter):
    """`state` active is neither of the others; a key that is revoked is not expired too."""

    project_id = _id()
    created_by_id = _id()
    state = _one_of(KeyState, method="in_state")
    name = _contains("name")
    search = _text(method="anywhere")

    def in_state(self, rows: "QuerySet[ApiKey]", _name: str, value: str) -> "QuerySet[ApiKey]":
        return rows.filter(has_state(KeyState(value), timezone.now()))

    def anywhere(self, rows: _Rows, _name: str, value: str) -> _Rows:
        """Find names, and what is shown of the key: the public id, the last four."""
        return _search(rows, value, "name", "public_id", "last_four")


class MemberFilter(ListFilter):
    role = _one_of(Role)
    search = _contains("user__email")


class MailDomainFilter(ListFilter):
    state = _one_of(["proven", "claimed"], method="in_state")
    search = _contains("domain")

    def in_state(self, rows: _Rows, _name: str, value: str) -> _Rows:
        return rows.filter(proven_at__isnull=value == "claimed")


class InvitationFilter(ListFilter):
    state = _one_of(InvitationState, method="in_state")
    search = _contains("email")

    def in_state(self, rows: _Rows, _name: str, value: str) -> _Rows:
        now = timezone.now()
        if value == InvitationState.OPEN:
            return rows.filter(outcome="", expires_at__gt=now)
        if value == InvitationState.EXPIRED:
            return rows.filter(outcome="", expires_at__lte=now)
        return rows.filter(outcome=value)


class QuotaFilter(ListFilter):
    scope = _one_of(["tenant", "project", "key"], method="at")
    project_id = _id()
    api_key_id = _id()
    limit = _one_of(QUOTA_NAMES)

    def at(self, rows: "QuerySet[Quota]", _name: str, value: str) -> "QuerySet[Quota]":
        if value == "key":
            return rows.exclude(api_key=None)
        return rows.filter(api_key=None, project__isnull=value == "tenant")


class QuotaAlertFilter(ListFilter):
    quota_id = _id()
    since = _since("raised_at")
    before = _before("raised_at")


class TransactionFilter(ListFilter):
    kind = _one_of(TransactionKind.values)
    since = _since("at")
    before = _before("at")
    search = _text(method="anywhere")

    def anywhere(self, rows: _Rows, _name: str, value: str) -> _Rows:
        return _search(rows, value, "reference", "memo")


class InvoiceFilter(ListFilter):
    """Drafts are not shown, so none are asked for."""

    state = _one_of(state for state in InvoiceState.values if state != InvoiceState.DRAFT)
    search = _contains("number")


class LineUsageFilter(ListFilter):
    api_key_id = _id()
    outcome = _one_of(Outcome)


class AdapterFilter(ListFilter):
    state = _one_of(["active", "archived"], method="in_state")
    search = _contains("slug")

    def in_state(self, rows: _Rows, _name: str, value: str) -> _Rows:
        return rows.filter(archived_at__isnull=value == "active")


class AdapterVersionFilter(ListFilter):
    state = _one_of(AdapterState)


class EndpointFilter(ListFilter):
    state = _one_of(["enabled", "disabled"], method="in_state")
    search = _text(method="anywhere")

    def in_state(self, rows: _Rows, _name: str, value: str) -> _Rows:
        return rows.filter(is_enabled=value == "enabled")

    def anywhere(self, rows: _Rows, _name: str, value: str) -> _Rows:
        return _search(rows, value, "url", "description")


class DeliveryFilter(ListFilter):
    state = _one_of(DeliveryState)
    type = _one_of(EventType, field_name="event__type")
    since = _since("created_at")
    before = _before("created_at")


class AuditFilter(ListFilter):
    """By actor, by record and by time: `since` is included, `before` is not."""

    actor_kind = _one_of(ActorKind)
    actor_id = _text()
    verb = _text()
    record_kind = _text()
    record_id = _text()
    since = _since("at")
    before = _before("at")
    search = _text(method="anywhere")

    def anywhere(self, rows: _Rows, _name: str, value: str) -> _Rows:
        """Find names of actors and records that were not erased."""
        return _search(rows, value, "personal__actor_name", "personal__record_name")
