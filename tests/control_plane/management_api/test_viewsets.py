"""What holds for every resource, so that a new one cannot leave it out."""

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from control_plane.management_api.serializers import ListQuery, StrictSerializer
from control_plane.management_api.viewsets import TenantScopedViewSet
from django.core.exceptions import ImproperlyConfigured
from django.urls import get_resolver
from rest_framework.serializers import Field, ValidationError

from tenants.permissions import Permission

OF_EACH_TYPE = (True, 7, 1.5, "text", ["text"], {"name": "text"})


class Lamps(TenantScopedViewSet):
    permission_map: ClassVar = {"list": Permission.VIEW}


def kinds(of: type[StrictSerializer]) -> Iterator[type[StrictSerializer]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


def fields_of_bodies() -> dict[str, Field[Any, Any, Any, Any]]:
    assert get_resolver().url_patterns, "all resources are imported"
    return {
        f"{kind.__name__}.{name}": field
        for kind in kinds(StrictSerializer)
        if not issubclass(kind, ListQuery)
        for name, field in kind().fields.items()
        if not field.read_only
    }


def takes(field: Field[Any, Any, Any, Any], value: object) -> bool:
    try:
        field.run_validation(value)
    except ValidationError:
        return False
    return True


def test_an_action_without_a_permission_stops_the_start() -> None:
    with pytest.raises(ImproperlyConfigured, match="create"):
        Lamps.as_view({"get": "list", "post": "create"})


def test_no_field_of_a_body_takes_json_of_more_than_one_type() -> None:
    lenient = {
        name: taken
        for name, field in fields_of_bodies().items()
        if len(taken := [value for value in OF_EACH_TYPE if takes(field, value)]) > 1
    }
    assert lenient == {}
