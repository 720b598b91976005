"""DRF's way to the filters of a view: its `filterset_class`, one of `control_plane.records`."""

from typing import Any

from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from django_filters.utils import translate_validation
from rest_framework import serializers
from rest_framework.request import Request

_Rows = QuerySet[Any, Any]


class ListFilterBackend(DjangoFilterBackend):  # type: ignore[misc]
    """Narrows lists; one record is found by its id alone."""

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
