"""What lists can be narrowed by, as django-filter has it: a `FilterSet` for each resource, a view's
`filterset_class`. Parameters that are nobody's are refused by the view (`ManagementViewSet.query`).

A page uses the same, with its form for the fields:

    wanted = ApiKeyFilter(request.GET, queryset=ApiKey.objects.all())
    if wanted.is_valid():
        found = page(wanted.qs, wanted.order(API_KEYS_ORDER), limit=50, cursor=cursor)
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import django_filters
from django import forms
from django.db.models import F, Q, QuerySet
from django.db.models.fields.json import KeyTextTransform
from django.utils import timezone

from control_plane.records.filter_fields import (
    DollarFilter,
    LabelFilter,
    MillisecondsFilter,
    MomentFilter,
    RequestIdFilter,
)
from gpu_workers.protocol.messages import Outcome
from gpu_workers.protocol.policy import QUOTA_NAMES
from inference.adapters.worker_counts import LIVE, state_of, worker_counts_of
from inference.models.adapter import AdapterState
from inference.models.usage import ID_TOLERANCE
from inference.usage.request_log import DEFAULT_DAYS, MAX_DAYS
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


class ListFilter(django_filters.FilterSet):  # type: ignore[misc]
    def order(self, order: Order) -> Order:
        """Return the list's order with cursors that belong to these filters alone: behind the row
        where one narrowed list was left, another has other rows."""
        return bound_order(order, self.data, self.filters)


def bound_order(order: Order, given: Mapping[str, Any], names: Iterable[str]) -> Order:
    told = [(name, str(given[name])) for name in sorted(names) if given.get(name)]
    return replace(order, name=f"{order.name} with {told}") if told else order


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
    """`limit_name` is what is counted: `limit` is the length of a page."""

    scope = _one_of(["tenant", "project", "key"], method="at")
    project_id = _id()
    api_key_id = _id()
    limit_name = _one_of(QUOTA_NAMES, field_name="limit")

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


class RefusalFilter(ListFilter):
    """`limit_name` is the limit that refused: `limit` is the length of a page."""

    project_id = _id()
    api_key_id = _id()
    model = _text()
    code = _text()
    limit_name = _text(field_name="limit")
    scope = _text()


class _TimesForm(forms.Form):
    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        since, before = given.get("since"), given.get("before")
        if since and since >= (before or timezone.now() + ID_TOLERANCE):
            wrong = "is not after 'since'." if before else "lies in the future."
            self.add_error("before" if before else "since", wrong)
        elif since and (before or timezone.now()) - since > timedelta(days=MAX_DAYS):
            self.add_error("since", f"ask for at most {MAX_DAYS} days at once.")
        return given


class RequestFilter(ListFilter):
    """Requests by their arrival: `since` is included, `before` is not; without either, and without
    an id, the last seven days. `created_by_id` is the member who made the key; `duration_over_ms`
    is of arrival to end, `label` one that the project has chosen to record, with its value."""

    since = MomentFilter(method="leave")
    before = MomentFilter(method="leave")
    request_id = RequestIdFilter()
    project_id = _id()
    api_key_id = _id()
    created_by_id = _id(method="by_creator")
    model = _text()
    adapter = _text()
    tier = _text()
    outcome = _one_of(Outcome)
    error_code = _text()
    ttft_over_ms = MillisecondsFilter(field_name="ttft_ms", lookup_expr="gt")
    duration_over_ms = MillisecondsFilter(method="longer")
    label = LabelFilter(method="by_label")
    cost_over = DollarFilter(field_name="cost_nanos", lookup_expr="gt")

    class Meta:
        form = _TimesForm

    def filter_queryset(self, queryset: Any) -> Any:
        given = self.form.cleaned_data
        rows: Any = queryset
        if given["since"] or given["before"] or not given["request_id"]:
            end = given["before"] or timezone.now() + ID_TOLERANCE
            rows = rows.arrived_between(given["since"] or end - timedelta(days=DEFAULT_DAYS), end)
        return super().filter_queryset(rows)

    def leave(self, rows: _Rows, _name: str, _value: datetime) -> _Rows:
        """Leave the rows as they are: both times are looked at together."""
        return rows

    def by_creator(self, rows: _Rows, _name: str, value: uuid.UUID) -> _Rows:
        """Find by the keys themselves: the index has no creators."""
        made = ApiKey.objects.filter(created_by_id=value).values_list("id", flat=True)
        return rows.filter(api_key_id__in=list(made))

    def by_label(self, rows: _Rows, _name: str, value: tuple[str, str]) -> _Rows:
        name, of_whom = value
        found: _Rows = rows.alias(of_whom=KeyTextTransform(name, "labels")).filter(of_whom=of_whom)
        return found

    def longer(self, rows: _Rows, _name: str, value: int) -> _Rows:
        took = F("finished_at") - F("arrived_at")
        found: _Rows = rows.alias(took=took).filter(took__gt=timedelta(milliseconds=value))
        return found


class AdapterFilter(ListFilter):
    state = _one_of(["active", "archived"], method="in_state")
    search = _contains("slug")

    def in_state(self, rows: _Rows, _name: str, value: str) -> _Rows:
        return rows.filter(archived_at__isnull=value == "active")


class AdapterVersionFilter(ListFilter):
    """`live` is ready and held by workers, by what they say now; `ready` all others that are. While
    nobody can tell none is live."""

    state = _one_of([*AdapterState, LIVE], method="in_state")

    def in_state(self, rows: _Rows, _name: str, value: str) -> _Rows:
        if value not in (LIVE, AdapterState.READY):
            return rows.filter(state=value)
        ready = list(rows.filter(state=AdapterState.READY))
        pool = ready[0].adapter.model.pool_id if ready else ""
        held = worker_counts_of(pool, ready) or {}
        live = [each.pk for each in ready if state_of(each, held.get(each.number)) == LIVE]
        if value == LIVE:
            return rows.filter(pk__in=live)
        return rows.filter(state=value).exclude(pk__in=live)


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
