"""API keys of a tenant. A key is shown in the one answer that makes it, and never again.

What a key may be, and that it is never wider than whoever makes or changes it, is said in
tenants/access/api_keys.py alone.
"""

import uuid
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Final

from django.core.exceptions import ValidationError
from msgspec import UNSET, Meta, UnsetType
from rest_framework.response import Response

from gpu_workers.protocol.policy import Scope
from inference.errors import InvalidRequest
from inference.management_api.bodies import Fields, Nothing, given_fields
from inference.management_api.lists import ListQuery, listed
from inference.management_api.view import TenantView
from tenants.access.api_keys import change_api_key, issue_api_key, rotate_api_key
from tenants.models import ApiKey, Project
from tenants.pagination import NEWEST_FIRST, Order, page
from tenants.permissions import Permission

_ORDER: Final = Order(name="api keys", fields=NEWEST_FIRST, is_descending=True)
_LONGEST_OVERLAP_SECONDS: Final = 30 * 24 * 3600

_Name = Annotated[str, Meta(max_length=200)]
_Moment = Annotated[datetime, Meta(tz=True)]
_Texts = Annotated[list[Annotated[str, Meta(min_length=1, max_length=200)]], Meta(max_length=100)]
_Scopes = Annotated[list[Scope], Meta(min_length=1, max_length=len(Scope))]


class KeyChange(Fields):
    """None takes a bound away; what is left out stays, or is inherited by a new key."""

    name: _Name | UnsetType = UNSET
    scopes: _Scopes | UnsetType = UNSET
    expires_at: _Moment | UnsetType | None = UNSET
    allowed_networks: _Texts | UnsetType | None = UNSET
    allowed_models: _Texts | UnsetType | None = UNSET
    allowed_adapters: _Texts | UnsetType | None = UNSET


class NewKey(KeyChange, kw_only=True):
    project_id: uuid.UUID


class Rotation(Fields):
    """For how long the key before goes on working."""

    overlap_seconds: Annotated[int, Meta(ge=0, le=_LONGEST_OVERLAP_SECONDS)] = 0


class ApiKeysView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW, "POST": Permission.WRITE_KEYS}
    parameters: ClassVar = {"GET": ListQuery}

    def get(self) -> Response:
        rows = ApiKey.objects.all()
        found = page(rows, _ORDER, limit=self.query.limit, cursor=self.query.cursor)
        return listed(found, _rendered)

    def post(self) -> Response:
        fields = given_fields(self.body(NewKey))
        project = Project.objects.filter(id=fields.pop("project_id")).first()
        if project is None:
            raise ValidationError({"project_id": "There is no such project."})
        issued = issue_api_key(project, by=self.access.principal, **fields)
        return Response(_rendered(issued.record) | {"key": issued.key}, status=201)


class OneApiKeyView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW, "PATCH": Permission.WRITE_KEYS}

    def get(self, key_id: uuid.UUID) -> Response:
        return Response(_rendered(ApiKey.objects.get(id=key_id)))

    def patch(self, key_id: uuid.UUID) -> Response:
        key = ApiKey.objects.get(id=key_id)
        fields = given_fields(self.body(KeyChange))
        added = set(fields.get("scopes", ())) - set(key.scopes)
        if added:
            raise InvalidRequest(
                "Scopes can be taken from a key and not added; make a new key with "
                f"{', '.join(sorted(added))}.",
                param="scopes",
            )
        change_api_key(key, by=self.access.principal, **fields)
        return Response(_rendered(key))


class RotateView(TenantView):
    permissions: ClassVar = {"POST": Permission.WRITE_KEYS}

    def post(self, key_id: uuid.UUID) -> Response:
        key = ApiKey.objects.get(id=key_id)
        overlap = timedelta(seconds=self.body(Rotation).overlap_seconds)
        secret = rotate_api_key(key, overlap=overlap, by=self.access.principal)
        return Response(_rendered(key) | {"key": secret})


class RevokeView(TenantView):
    permissions: ClassVar = {"POST": Permission.WRITE_KEYS}
    # Also then a leaked key can be stopped for good.
    while_suspended: ClassVar = frozenset({"POST"})

    def post(self, key_id: uuid.UUID) -> Response:
        key = ApiKey.objects.get(id=key_id)
        self.body(Nothing)
        key.revoke()
        return Response(_rendered(key))


def _rendered(key: ApiKey) -> dict[str, Any]:
    return {
        "object": "api_key",
        "id": key.id,
        "masked": key.masked,
        "name": key.name,
        "project_id": key.project_id,
        "scopes": key.scopes,
        "expires_at": key.expires_at,
        "allowed_networks": key.allowed_networks,
        "allowed_models": key.allowed_models,
        "allowed_adapters": key.allowed_adapters,
        "created_at": key.created_at,
        "rotated_at": key.rotated_at,
        "previous_expires_at": key.previous_expires_at,
        "last_used_at": key.last_used_at,
        "revoked_at": key.revoked_at,
    }
