"""Each operation of the management API, as drf-spectacular asks: REST framework's
`DEFAULT_SCHEMA_CLASS`. A viewset says in `summaries` what its actions do; who may, what stands
behind the question mark, and how an action may be refused are read from what the viewset has."""

import re
from collections.abc import Mapping
from typing import Any, Final

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ComponentRegistry
from drf_spectacular.utils import OpenApiParameter
from rest_framework.permissions import AllowAny

from control_plane.management_api.authentication import ApiKeyAuthentication
from control_plane.management_api.openapi import extensions  # noqa: F401 - found by being imported
from control_plane.management_api.openapi.errors import responses
from control_plane.management_api.openapi.security import requirement
from control_plane.management_api.openapi.tags import title_of
from control_plane.management_api.permissions import IsPerson
from tenants.permissions import Permission, roles_with, scope_for

_VARIABLE_OR_ENDING: Final = re.compile(r"\{[^}]*\}|\.\w+$")


# What is read of a request's headers, by action.
_UNCHANGED: Final = {
    "If-Match": "The `ETag` of the record as it was read; 412 if it changed since."
}
_REPEATED: Final = {
    "Idempotency-Key": "Repeated within 24 h with the same body, the call is not made again and "
    "answered as the first was, but for secrets; 422 with another body."
}
_PRECONDITIONS: Final = {
    "retrieve": {"If-None-Match": "The `ETag` of what is known already; 304 if it is still that."},
    "partial_update": _UNCHANGED,
    "destroy": _UNCHANGED,
}


class ManagementSchema(AutoSchema):
    """drf-spectacular's, that reads what our viewsets say of themselves."""

    view: Any

    def get_operation(
        self, path: str, path_regex: str, path_prefix: str, method: str, registry: ComponentRegistry
    ) -> dict[str, Any] | None:
        operation = super().get_operation(path, path_regex, path_prefix, method, registry)
        if operation is not None:
            operation["responses"] |= responses(self._refusals())
            if "If-None-Match" in self._headers():
                operation["responses"]["304"] = {"description": "It is still as it was."}
        return operation

    def get_summary(self) -> str | None:
        summary: str | None = self.view.summaries.get(self.view.action)
        return summary

    def get_description(self) -> str:  # type: ignore[override]  # as drf-spectacular's own
        """Return who may: docstrings speak to those who read the code."""
        permission = self._permission()
        return "" if permission is None else _who_may(permission)

    def get_tags(self) -> list[str]:
        words = self._words()
        return [title_of(words[1] if len(words) > 1 and words[0] == "tenants" else words[0])]

    def get_operation_id(self) -> str:
        """Return words of the path and the action: tenants_keys_rotate."""
        words, action = self._words(), self.view.action
        if words[-1] == getattr(getattr(self.view, action), "url_path", None):
            words.pop()
        return "_".join([*words, action]).replace("-", "_")

    def get_override_parameters(self) -> list[Any]:
        query = self.view.query_serializers.get(self.view.action)
        return ([] if query is None else [query]) + [
            _header(name, text) for name, text in self._headers().items()
        ]

    def get_auth(self) -> list[dict[str, list[str]]]:
        auths = [
            requirement(each, self.method)
            for each in self.view.get_authenticators()
            if not (self._is_for_people() and isinstance(each, ApiKeyAuthentication))
        ]
        is_open = any(isinstance(each, AllowAny) for each in self.view.get_permissions())
        return [*auths, {}] if is_open else auths

    def _is_for_people(self) -> bool:
        """Return whether no API key may do it, whatever its scopes."""
        if any(isinstance(each, IsPerson) for each in self.view.get_permissions()):
            return True
        permission = self._permission()
        return permission is not None and scope_for(permission) is None

    def _permission(self) -> Permission | None:
        permissions: Mapping[str, Permission] = getattr(self.view, "permission_map", {})
        return permissions.get(self.view.action)

    def _headers(self) -> dict[str, str]:
        """Return the headers that the action reads, and what each is good for."""
        if self.method == "POST":
            is_kept = hasattr(self.view, "secrets") and self.view.action not in self.view.unscoped
            return _REPEATED if is_kept else {}
        if hasattr(self.view, "check_seen"):
            return _PRECONDITIONS.get(self.view.action, {})
        return {}

    def _words(self) -> list[str]:
        path = self.path.removeprefix(self.path_prefix.removeprefix("^")).removeprefix("/v1")
        return [word for word in _VARIABLE_OR_ENDING.sub("", path).split("/") if word]

    def _refusals(self) -> set[int]:
        """Return the statuses with which the operation may be refused."""
        refusals = {400, 406, 429, 500, 503}
        if self.view.get_authenticators():
            refusals |= {401, 403}
        refusals |= self.view.more_refusals
        if "{" in self.path:
            refusals |= {404}
        if "If-Match" in self._headers():
            refusals |= {412}
        if "Idempotency-Key" in self._headers():
            refusals |= {422}
        if self.method != "GET":
            refusals |= {409, 411, 413, 415}
        return refusals


def _header(name: str, text: str) -> OpenApiParameter:
    return OpenApiParameter(name, str, OpenApiParameter.HEADER, description=text)


def _who_may(permission: Permission) -> str:
    scope = scope_for(permission)
    roles = ", ".join(roles_with(permission))
    keys = "no API key" if scope is None else f"an API key with the scope `{scope}`"
    return f"Takes one of the roles {roles}, or {keys}."
