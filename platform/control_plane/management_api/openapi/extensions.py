"""What drf-spectacular cannot know of our serializers, fields and filters. It finds these
classes once the module is imported."""

from typing import Any

import django_filters
from drf_spectacular.extensions import (
    OpenApiFilterExtension,
    OpenApiSerializerExtension,
    OpenApiSerializerFieldExtension,
)
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import build_parameter_type, get_lib_doc_excludes
from drf_spectacular.utils import Direction

from control_plane.management_api.serializers import ListQuery, PageSerializer, StrictSerializer

Described = dict[str, Any]


def undocumented_classes() -> list[type]:
    """Return the classes whose docstrings speak to those who read the code, not to callers."""
    return [*get_lib_doc_excludes(), StrictSerializer, PageSerializer, ListQuery]


class SerializerSchema(OpenApiSerializerExtension):
    """A body takes no field but its own; an answer has all of them, but for those that the
    serializer names in `sometimes`, and null in its `nulls`."""

    target_class = "rest_framework.serializers.Serializer"
    match_subclasses = True
    priority = -2  # after those of drf-spectacular itself

    def map_serializer(self, auto_schema: AutoSchema, direction: Direction) -> Described:
        schema: Described = auto_schema._map_serializer(
            self.target, direction, bypass_extensions=True
        )
        fields = schema.get("properties", {})
        if direction == "request":
            required = set(schema.get("required", ()))
            # One without fields is no body at all.
            if isinstance(self.target, StrictSerializer) and fields:
                schema["additionalProperties"] = False
                required |= self.target.always
        else:
            sometimes: frozenset[str] = getattr(self.target, "sometimes", frozenset())
            required = fields.keys() - sometimes
            # A repeated call is not told a secret again.
            nulls: frozenset[str] = getattr(auto_schema.view, "secrets", frozenset())
            nulls |= getattr(self.target, "nulls", frozenset())
            for name in fields.keys() & nulls:
                fields[name] = {**fields[name], "type": ["string", "null"]}
        schema.pop("required", None)
        for field in fields.values():
            field.pop("readOnly", None)
            if field.get("default") == "":  # as much as none
                del field["default"]
        return schema | ({"required": sorted(required)} if required else {})


class ConstantSchema(OpenApiSerializerFieldExtension):
    target_class = "control_plane.records.fields.ConstantField"

    def map_serializer_field(self, auto_schema: AutoSchema, direction: Direction) -> Described:
        return {"type": "string", "const": self.target.word}


class FilterSchema(OpenApiFilterExtension):
    """What a list can be narrowed by, from its `FilterSet` alone: there are no rows to look at
    while nobody asks."""

    target_class = "control_plane.management_api.filters.ListFilterBackend"
    optional = True
    priority = 1

    def get_schema_operation_parameters(
        self, auto_schema: AutoSchema, *_: Any, **__: Any
    ) -> list[Described]:
        view: Any = auto_schema.view
        if view.action != "list" or view.filterset_class is None:
            return []
        filters = view.filterset_class.base_filters
        return [
            build_parameter_type(name=name, schema=_filter_schema(each), location="query")
            for name, each in filters.items()
        ]


def _filter_schema(given: Any) -> Described:
    own: Described | None = getattr(given, "described", None)
    if own is not None:
        return own
    if isinstance(given, django_filters.UUIDFilter):
        return {"type": "string", "format": "uuid"}
    if isinstance(given, django_filters.ChoiceFilter):
        return {"type": "string", "enum": [value for value, _ in given.extra["choices"]]}
    if isinstance(given, django_filters.BooleanFilter):
        return {"type": "boolean"}
    if isinstance(given, django_filters.IsoDateTimeFilter):
        return {"anyOf": [{"type": "string", "format": each} for each in ("date-time", "date")]}
    longest = given.extra.get("max_length")
    return {"type": "string", "minLength": 1} | ({"maxLength": longest} if longest else {})
