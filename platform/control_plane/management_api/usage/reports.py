"""GET usage, costs and errors: what was used, what it cost and what went wrong, by day or hour,
project, key, creator of the key, model, adapter or tier; of one tenant, or for operators of all."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.management_api.callers import KeyBearer, Person
from control_plane.management_api.permissions import MayInTenant
from control_plane.management_api.usage.queries import (
    AnyTenantsReportQuery,
    ReportQuery,
    usage_query,
)
from control_plane.management_api.usage.report_viewset import ReportViewSet, as_pages_or_csv
from control_plane.management_api.usage.rows import (
    CostReportSerializer,
    CostsReportSerializer,
    CostTotalSerializer,
    ErrorsReportSerializer,
    ErrorTotalSerializer,
    ReportSerializer,
    StoringReportSerializer,
    UsageReportSerializer,
    UsageTotalSerializer,
)
from control_plane.records.naming import Naming
from inference.adapters.loads import Loads, loads_of
from inference.adapters.storage import Storage, storage_of
from inference.errors import InvalidRequest
from inference.usage.reports import (
    OF_POOLS,
    UsageQuery,
    aggregate,
    aggregate_errors,
    total_cost_nanos,
)
from tenants.access.entry_policy import is_operators
from tenants.access.people import tenants_of
from tenants.audit.hourly import is_first_in_an_hour
from tenants.audit.log import record
from tenants.isolation.audit_actor import Verb
from tenants.isolation.scoping import operator_scope
from tenants.models import Tenant
from tenants.permissions import Permission

_T = TypeVar("_T")


class _UsageReportViewSet(ReportViewSet):
    query_serializers: ClassVar = {"list": ReportQuery}
    report_serializer: ClassVar[type[ReportSerializer]] = ReportSerializer

    @cached_property
    def asked(self) -> UsageQuery:
        return usage_query(self.query, datetime.now(UTC).date())

    @property
    def days(self) -> tuple[date, date]:
        return self.asked.first, self.asked.last

    @property
    def columns(self) -> Sequence[str]:
        return [each.column for each in self.asked.group_by]

    @property
    def naming(self) -> Naming:
        return Naming(with_people=Permission.VIEW_PEOPLE in self.access.permissions)

    def paginate_queryset(self, queryset: Any) -> Any:
        rows = super().paginate_queryset(queryset)
        self.naming.add_to(rows or ())
        return rows

    def get_paginated_response(self, data: Any) -> Response:
        response = super().get_paginated_response(data)
        context = self.get_serializer_context()
        response.data |= self.report_serializer(self.asked, context=context).data
        return response


@extend_schema_view(list=as_pages_or_csv(UsageReportSerializer))
class UsageViewSet(_UsageReportViewSet):
    summaries: ClassVar = {"list": "Report usage"}
    serializer_class = UsageTotalSerializer
    report_serializer = StoringReportSerializer
    report = "usage"

    def get_queryset(self) -> QuerySet[Any, Any]:
        return aggregate(self.asked, with_latencies=True)

    @property
    def storage(self) -> Storage | None:
        return self.of_whole(storage_of)

    @property
    def adapter_loads(self) -> Loads | None:
        return self.of_whole(lambda tenant: loads_of(tenant, *self.days))

    def of_whole(self, measure: Callable[[Tenant | None], _T]) -> _T | None:
        """Return a measure of the tenant that the report is of, or of everybody (None); None where
        there is nobody."""
        return measure(self.tenant)


@extend_schema_view(list=as_pages_or_csv(CostsReportSerializer))
class CostsViewSet(_UsageReportViewSet):
    summaries: ClassVar = {"list": "Report costs"}
    serializer_class = CostTotalSerializer
    report_serializer = CostReportSerializer
    report = "cost"

    def get_queryset(self) -> QuerySet[Any, Any]:
        return aggregate(self.asked, with_latencies=False)

    @cached_property
    def total_nanos(self) -> int:
        """Return the cost of all rows, those of other pages too."""
        return total_cost_nanos(self.asked)


@extend_schema_view(list=as_pages_or_csv(ErrorsReportSerializer))
class ErrorsViewSet(_UsageReportViewSet):
    summaries: ClassVar = {"list": "Report errors"}
    serializer_class = ErrorTotalSerializer
    report = "errors"
    more_key: ClassVar = ("code",)

    def get_queryset(self) -> QuerySet[Any, Any]:
        if self.asked.dimensions & OF_POOLS:
            raise InvalidRequest(
                "Errors are counted by tenant, and not by pool or service class.", param="group_by"
            )
        return aggregate_errors(self.asked)


class _IsOperatorOrMay(MayInTenant):
    def has_permission(self, request: Request, view: Any) -> bool:
        return view.is_operators() or super().has_permission(request, view)


class _AnyTenants(_UsageReportViewSet):
    """The same without a tenant in the address."""

    permission_classes = [_IsOperatorOrMay]
    # Of `tenant_id`: an organisation that is not the caller's.
    more_refusals: ClassVar = frozenset({404})
    query_serializers: ClassVar = {"list": AnyTenantsReportQuery}

    def is_operators(self) -> bool:
        if not isinstance(self.caller, Person):
            return False
        user, proofs = self.caller.user, self.caller.proofs
        return is_operators(user, proofs) and user.has_perm("inference.view_usagerecord")

    @property
    def tenant_id(self) -> uuid.UUID:
        given: uuid.UUID | None = self.query["tenant_id"]
        if given is not None:
            return given
        caller = self.caller
        if isinstance(caller, KeyBearer):
            return caller.key.tenant_id
        places = tenants_of(caller.user, limit=2).rows
        if len(places) != 1:
            raise InvalidRequest(
                "You belong to no tenant or to several: say which with 'tenant_id'.",
                param="tenant_id",
            )
        return places[0].tenant.id

    def is_of_one_tenant(self) -> bool:
        return not self.is_operators()

    @property
    def reader_id(self) -> uuid.UUID:
        """Return whose files are counted together: an operator's own, of whichever tenant."""
        caller = self.caller
        if isinstance(caller, Person) and self.is_operators():
            return caller.user.id
        return super().reader_id

    @property
    def naming(self) -> Naming:
        return Naming(with_people=True) if self.is_operators() else super().naming

    @contextmanager
    def walls(self) -> Iterator[None]:
        if not self.is_operators():
            with super().walls():
                yield
            return
        with operator_scope(f"{self.report} report"):
            self._note()
            yield

    def _note(self) -> None:
        """Put it into the log that an operator has looked, once an hour for each report."""
        wanted: uuid.UUID | None = self.query["tenant_id"]
        tenant = None if wanted is None else Tenant.objects.filter(pk=wanted).first()
        is_known = wanted is None or tenant is not None
        if is_known and is_first_in_an_hour(f"report:{self.reader_id}:{wanted}:{self.report}"):
            record(Verb.REPORTED, tenant, tenant_id=wanted, report=self.report)


class AnyTenantsUsageViewSet(_AnyTenants, UsageViewSet):
    """GET /api/v1/usage."""

    def of_whole(self, measure: Callable[[Tenant | None], _T]) -> _T | None:
        if not self.is_operators():
            return super().of_whole(measure)
        wanted: uuid.UUID | None = self.query["tenant_id"]
        if wanted is None:
            return measure(None)
        found = Tenant.objects.select_related("tier").filter(pk=wanted).first()
        return None if found is None else measure(found)


class AnyTenantsCostsViewSet(_AnyTenants, CostsViewSet):
    """GET /api/v1/costs."""


class AnyTenantsErrorsViewSet(_AnyTenants, ErrorsViewSet):
    """GET /api/v1/errors."""
