"""What ends a key's secret: rotation, which makes the next, and revocation. Each page works by
itself; revocation is also asked for in a dialog over the key's own."""

import uuid
from datetime import timedelta
from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from control_plane.dashboard.actions import NameTyped
from control_plane.dashboard.page import TenantPage
from control_plane.dashboard.pages.key_forms import RotationForm
from control_plane.dashboard.pages.keys import (
    key_of,
    key_row,
    name_to_type,
    what_ends,
)
from tenants.access.api_keys import revoke_api_key, rotate_api_key
from tenants.access.key_lists import KeyState
from tenants.models import ApiKey
from tenants.permissions import Permission


class RotateKeyPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.WRITE_KEYS, "POST": Permission.WRITE_KEYS}
    template_name = "dashboard/keys/rotate.html"
    section = "keys"

    def get(self, request: HttpRequest, key_id: uuid.UUID) -> HttpResponse:
        key = key_of(key_id)
        return self.show(self._context(key, RotationForm(key=key)))

    def post(self, request: HttpRequest, key_id: uuid.UUID) -> HttpResponse:
        key, secret = key_of(key_id), None
        form = RotationForm(request.POST, key=key)
        if form.is_valid():
            overlap: timedelta = form.cleaned_data["overlap"]
            secret = form.perform(
                lambda: rotate_api_key(key, overlap=overlap, by=self.access.as_member())
            )
        context = self._context(key, form)
        if secret is None:
            return self.show(context, fragment="form", status=422)
        return self.show(context | {"secret": secret}, fragment="form")

    def _context(self, key: ApiKey, form: RotationForm) -> dict[str, Any]:
        row = key_row(key, self.access)
        can_rotate = row.state is KeyState.ACTIVE
        return {
            "key": key,
            "row": row,
            "form": form,
            "can_rotate": can_rotate,
            **self.write_access(Permission.WRITE_KEYS),
        }


class RevokeKeyPage(TenantPage):
    """Also while the tenant is suspended: a key that leaked can be stopped for good."""

    permissions: ClassVar = {"GET": Permission.WRITE_KEYS, "POST": Permission.WRITE_KEYS}
    while_suspended = True
    template_name = "dashboard/keys/revoke.html"
    section = "keys"

    def get(self, request: HttpRequest, key_id: uuid.UUID) -> HttpResponse:
        key = key_of(key_id)
        return self.show(self._context(key, NameTyped(name=name_to_type(key))))

    def post(self, request: HttpRequest, key_id: uuid.UUID) -> HttpResponse:
        key = key_of(key_id)
        form = NameTyped(request.POST, name=name_to_type(key))
        if form.is_valid():
            form.perform(lambda: revoke_api_key(key, by=self.access.as_member()))
        if form.errors:
            return self.show(self._context(key, form), fragment="form", status=422)
        messages.success(request, f"Key {key.title} was revoked.")
        return self.go_to(reverse("dashboard:key", args=[self.tenant.id, key.id]))

    def _context(self, key: ApiKey, form: NameTyped) -> dict[str, Any]:
        row = key_row(key, self.access)
        return {"key": key, "row": row, "form": form, "what_ends": what_ends(key)}
