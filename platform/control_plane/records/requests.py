"""A request of the log as it is told, and many as one file. Never what it said."""

import csv
import io
import json
import uuid
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, Final

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from control_plane.records import fields
from control_plane.records.filters import RequestFilter
from gpu_workers.protocol.messages import Outcome
from inference.models import UsageRecord
from inference.usage.request_log import REQUESTS_ORDER, page_of_requests
from tenants.exports import read_part
from tenants.isolation.scoping import tenant_scope
from tenants.money import decimal_dollars
from tenants.pagination import Page
from tenants.spreadsheet import spreadsheet_cell

MAX_CSV_ROWS: Final = 100_000
ROWS_AT_ONCE: Final = 1000


class RequestSerializer(serializers.Serializer[Any]):
    """Times in ms; None where the moment never came. `created_by_id` is the member who made the
    key, if one did; `created_by_email` is for who may know the organisation's people."""

    object = fields.ConstantField("request")
    id = fields.UUIDField(source="request_id", read_only=True)
    arrived_at = fields.DateTimeField(read_only=True)
    finished_at = fields.DateTimeField(read_only=True)
    project_id = fields.UUIDField(read_only=True)
    project_name = fields.CharField(source="project.name", read_only=True)
    api_key_id = fields.UUIDField(read_only=True)
    api_key_name = serializers.SerializerMethodField()
    created_by_id = fields.UUIDField(
        source="api_key.created_by_id", read_only=True, allow_null=True
    )
    created_by_email = serializers.SerializerMethodField()
    model = fields.CharField(read_only=True)
    adapter = fields.CharField(read_only=True)
    adapter_version = serializers.SerializerMethodField()
    tier = fields.CharField(read_only=True)
    service_class = fields.CharField(read_only=True)
    api = fields.CharField(read_only=True)
    stream = fields.BooleanField(read_only=True)
    outcome = serializers.ChoiceField([str(each) for each in Outcome], read_only=True)
    finish_reason = fields.CharField(read_only=True, allow_null=True)
    error_code = fields.CharField(read_only=True, allow_null=True)
    prompt_tokens = fields.IntegerField(read_only=True)
    cached_tokens = fields.IntegerField(read_only=True)
    completion_tokens = fields.IntegerField(read_only=True)
    reasoning_tokens = fields.IntegerField(read_only=True)
    cost_nanos = fields.IntegerField(read_only=True)
    cost_dollars = serializers.SerializerMethodField()
    queue_ms = fields.IntegerField(read_only=True, allow_null=True)
    ttft_ms = fields.IntegerField(read_only=True, allow_null=True)
    inter_token_p50_ms = serializers.FloatField(
        source="itl_p50_ms", read_only=True, allow_null=True
    )
    inter_token_p95_ms = serializers.FloatField(
        source="itl_p95_ms", read_only=True, allow_null=True
    )
    duration_ms = fields.IntegerField(read_only=True)
    labels = serializers.SerializerMethodField()

    def get_api_key_name(self, record: UsageRecord) -> str:
        return record.api_key.title

    @extend_schema_field({"type": ["string", "null"]})
    def get_created_by_email(self, record: UsageRecord) -> str | None:
        creator = record.api_key.created_by
        return creator.email if creator and self.context.get("names_people") else None

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
    def get_labels(self, record: UsageRecord) -> dict[str, str]:
        return record.labels or {}

    @extend_schema_field({"type": ["integer", "null"]})
    def get_adapter_version(self, record: UsageRecord) -> int | None:
        return record.adapter_version or None

    def get_cost_dollars(self, record: UsageRecord) -> str:
        return decimal_dollars(record.cost_nanos, digits=9)


async def csv_of(
    tenant_id: uuid.UUID, chosen: Mapping[str, Any], *, names_people: bool
) -> AsyncGenerator[bytes]:
    """Yield the file of what these filters find, which are valid, with the addresses of keys'
    creators if it `names_people`. Each part is a transaction of its own: a reader who is slow holds
    none."""
    given = {name: chosen[name] for name in RequestFilter.base_filters if chosen.get(name)}
    yield _table([_COLUMNS])
    rows, cursor = 0, None
    while True:
        found = await read_part(_part, tenant_id, given, cursor, names_people)
        rows, cursor = rows + len(found.rows), found.next_cursor
        yield _table(map(_cells, found.rows))
        # What has come since it was counted.
        if cursor is None or rows >= MAX_CSV_ROWS:
            return


def _part(
    tenant_id: uuid.UUID, given: Mapping[str, Any], cursor: str | None, names_people: bool
) -> Page[Mapping[str, Any]]:
    with tenant_scope(tenant_id):
        wanted = RequestFilter(given, queryset=UsageRecord.objects.all())
        wanted.is_valid()
        found = page_of_requests(
            wanted.qs, wanted.order(REQUESTS_ORDER), limit=ROWS_AT_ONCE, cursor=cursor
        )
        context = {"names_people": names_people}
        shown = RequestSerializer(found.rows, many=True, context=context).data
        return Page(rows=list(shown), next_cursor=found.next_cursor)


_COLUMNS: Final = tuple(name for name in RequestSerializer().get_fields() if name != "object")


def _cells(row: Mapping[str, Any]) -> list[object]:
    cells = {**row, "labels": json.dumps(row["labels"], ensure_ascii=False)}
    return [spreadsheet_cell(cells[name]) for name in _COLUMNS]


def _table(rows: Iterable[Iterable[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()
