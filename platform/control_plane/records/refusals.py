"""Refusals in sum as they are told, and as one file."""

import uuid
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from control_plane.records import fields
from control_plane.records.csv_files import csv_table, order_by
from inference.refusals.reports import Dimension, RefusalQuery, aggregate, is_nobody


@extend_schema_field(serializers.UUIDField(allow_null=True))
class _OwnerField(fields.UUIDField):
    """Null of refusals that were too varied to be counted one by one."""

    def to_representation(self, value: uuid.UUID) -> Any:
        return None if is_nobody(value) else super().to_representation(value)


@extend_schema_field(serializers.CharField(allow_null=True))
class NameField(fields.CharField):
    """A name, null where there is none; a group that was not asked for is left out."""

    def to_representation(self, value: str) -> Any:
        return super().to_representation(value) or None


class RefusalTotalSerializer(serializers.Serializer[Any]):
    """The groups that were asked for, and no other. `model` is null of requests that ended before
    it was read, `limit` and `scope` where no limit refused."""

    sometimes = frozenset(
        {"date", *(each.column for each in Dimension if each is not Dimension.DAY)}
    )

    object = fields.ConstantField("refusal.total")
    date = serializers.DateField(source="day", read_only=True)
    hour = serializers.DateTimeField(read_only=True)
    project_id = _OwnerField(read_only=True)
    api_key_id = _OwnerField(read_only=True)
    model = NameField(read_only=True)
    code = fields.CharField(read_only=True)
    limit = NameField(read_only=True)
    scope = NameField(read_only=True)
    refusals = fields.IntegerField(read_only=True)


def refusals_csv(asked: RefusalQuery) -> bytes:
    """Return the report as a file, of all rows. Raises `InvalidRequest` for one of too many."""
    columns = columns_of(asked)
    return csv_table(
        aggregate(asked), order_by("refusals as a file", columns), RefusalTotalSerializer, columns
    )


def columns_of(asked: RefusalQuery) -> list[str]:
    return [each.column for each in asked.group_by]
