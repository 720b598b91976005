"""What ends an adapter, or a version of one. Each page says what ends and asks for the name."""

import uuid
from collections.abc import Callable

from django.contrib import messages
from django.http import HttpRequest, HttpResponse

from control_plane.dashboard.actions import NameTyped
from control_plane.dashboard.pages.adapters.adapters import ChangingPage
from inference.adapters.lifecycle import archive_version, delete_adapter, delete_version
from inference.adapters.lists import count_keys_that_list, find_adapter, find_version
from inference.models.adapter import Adapter, AdapterState, AdapterVersion


class _EndVersionPage(ChangingPage):
    """Asks for the version's name, then calls `end`."""

    end: Callable[[AdapterVersion], AdapterVersion]
    done: str

    def get(
        self, request: HttpRequest, adapter_id: uuid.UUID, version_id: uuid.UUID
    ) -> HttpResponse:
        version = find_version(adapter_id, version_id)
        return self._asking(version, NameTyped(name=str(version)))

    def post(
        self, request: HttpRequest, adapter_id: uuid.UUID, version_id: uuid.UUID
    ) -> HttpResponse:
        version = find_version(adapter_id, version_id)
        form = NameTyped(request.POST, name=str(version))
        if not form.is_valid() or not form.perform(lambda: type(self).end(version)):
            return self._asking(version, form, status=422)
        messages.success(request, self.done.format(version))
        return self.go_to(self.address_of(version.adapter))

    def _asking(
        self, version: AdapterVersion, form: NameTyped, *, status: int = 200
    ) -> HttpResponse:
        adapter = version.adapter
        context = {
            "adapter": adapter,
            "version": version,
            "has_traffic": bool(adapter.permille_of(version.number)),
            "form": form,
        }
        return self.show(context, status=status)


class ArchiveVersionPage(_EndVersionPage):
    template_name = "dashboard/adapters/archive_version.html"
    end = staticmethod(archive_version)
    done = "{} was archived."


class DeleteVersionPage(_EndVersionPage):
    template_name = "dashboard/adapters/delete_version.html"
    end = staticmethod(delete_version)
    done = "{} answers no new request. What is stored of it is deleted once nothing needs it."


class DeleteAdapterPage(ChangingPage):
    template_name = "dashboard/adapters/delete.html"

    def get(self, request: HttpRequest, adapter_id: uuid.UUID) -> HttpResponse:
        adapter = find_adapter(adapter_id)
        return self._asking(adapter, NameTyped(name=adapter.name))

    def post(self, request: HttpRequest, adapter_id: uuid.UUID) -> HttpResponse:
        adapter = find_adapter(adapter_id)
        form = NameTyped(request.POST, name=adapter.name)
        if not form.is_valid() or not form.perform(lambda: delete_adapter(adapter)):
            return self._asking(adapter, form, status=422)
        messages.success(request, f"{adapter.name} was deleted.")
        return self.go_to(self.list_address())

    def _asking(self, adapter: Adapter, form: NameTyped, *, status: int = 200) -> HttpResponse:
        kept = adapter.versions.exclude(state=AdapterState.DELETED)
        context = {
            "adapter": adapter,
            "count": kept.count(),
            "key_count": count_keys_that_list(adapter),
            "form": form,
        }
        return self.show(context, status=status)
