"""Pinning: an adapter that workers keep at hand, whether or not requests come for it."""

import uuid
from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse

from control_plane.dashboard.actions import attempt
from control_plane.dashboard.pages.adapters.adapters import ChangingPage
from inference.adapters.lifecycle import pin_adapter, unpin_adapter
from inference.adapters.lists import find_adapter
from tenants.permissions import Permission


class PinPage(ChangingPage):
    permissions: ClassVar = {"POST": Permission.WRITE_ADAPTERS}
    change: ClassVar[Any] = staticmethod(pin_adapter)
    said = "The adapter is pinned. Workers fetch it within seconds and keep it at hand."

    def post(self, request: HttpRequest, adapter_id: uuid.UUID) -> HttpResponse:
        adapter = find_adapter(adapter_id)
        if attempt(request, lambda: self.change(adapter)):
            messages.success(request, self.said)
        return self.go_to(self.address_of(adapter))


class UnpinPage(PinPage):
    change: ClassVar[Any] = staticmethod(unpin_adapter)
    said = "The adapter is not pinned any more. Workers keep it as they keep others."
