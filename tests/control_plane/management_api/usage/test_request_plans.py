"""How PostgreSQL answers the log of requests."""

from copy import copy

import psycopg
import pytest
from control_plane.records.filters import RequestFilter
from django.conf import settings

from gpu_workers.protocol.request_id import new_request_id
from inference.models import UsageRecord
from tenants.isolation.scoping import operator_scope, tenant_scope
from tests.support.two_tenants import House
from tests.support.usage_entries import WEEK, usage_record

OTHERS = 2_000  # of another tenant: of a few rows any plan is as good


@pytest.mark.django_db(transaction=True)
def test_a_rare_filter_is_answered_from_the_index_alone(acme: House, globex: House) -> None:
    usage_record(acme.key)
    other = usage_record(globex.key)
    copies = []
    for _ in range(OTHERS):
        other.request_id = new_request_id(int(other.arrived_at.timestamp() * 1000))
        copies.append(copy(other))
    with operator_scope("test"):
        UsageRecord.objects.bulk_create(copies)
    with psycopg.connect(settings.ENV.owner_database_url, autocommit=True) as owner:
        owner.execute("VACUUM ANALYZE inference_usagerecord")  # plans hang on statistics
    with tenant_scope(acme.tenant.id):
        wanted = RequestFilter(
            WEEK | {"model": "nothing", "error_code": "like_it", "duration_over_ms": "5"},
            queryset=UsageRecord.objects.all(),
        )
        assert wanted.is_valid()
        rows = wanted.qs.only("request_id").order_by("-request_id")[:26]
        plan = rows.explain()
    assert "Index Only Scan" in plan and "tenant_id_request_id" in plan, plan
