"""The base of what is sent and shown. Every field is on an allow-list, the serializer's writable
fields; any other is refused by its name."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers

from control_plane.records.fields import ConstantField, NumberParameter

MAX_ROWS: Final = 200
_SHOWN_CHARACTERS: Final = 80


class StrictSerializer(serializers.Serializer[Any]):
    """DRF's, that takes no field it does not know, and none that is read-only. `always` are fields
    that may not be left out of a change, either."""

    always: ClassVar[frozenset[str]] = frozenset()

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        known = {name for name, field in self.fields.items() if not field.read_only}
        unknown = next((name for name in data if name not in known), None)
        if unknown is not None:
            shown = unknown[:_SHOWN_CHARACTERS]
            raise serializers.ValidationError(
                {shown: f"Unknown parameter {shown!r}."}, code="unknown_field"
            )
        if getattr(self.root, "partial", False):
            self._check_always(data)
        # An empty form is an empty object, and none of a form's own rules hold.
        values: dict[str, Any] = super().to_internal_value(dict(data))
        return values

    def _check_always(self, data: Mapping[str, Any]) -> None:
        missing = sorted(self.always - data.keys())
        if missing:
            errors = {name: [self.fields[name].error_messages["required"]] for name in missing}
            raise serializers.ValidationError(errors, code="required")


class Nothing(StrictSerializer):
    """Of a call that takes no fields."""


@extend_schema_serializer(many=False)
class PageSerializer(serializers.Serializer[Any]):
    """A list that has something beside its rows, for the description: `data` is a subclass's."""

    object = ConstantField("list")
    next_cursor = serializers.CharField(read_only=True, allow_null=True)


class ListQuery(StrictSerializer):
    """What may stand behind the question mark of a list; `cursor` is the `next_cursor` of the page
    before."""

    limit = NumberParameter(min_value=1, max_value=MAX_ROWS, default=50)
    cursor = serializers.CharField(max_length=1000, allow_blank=True, default=None)
