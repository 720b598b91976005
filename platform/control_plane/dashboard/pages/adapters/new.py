"""A new adapter with its first version, and a further version of one."""

import uuid
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from control_plane.dashboard.page import UnscopedWork
from control_plane.dashboard.pages.adapters.adapters import ChangingPage
from control_plane.dashboard.pages.adapters.files import FILE_ID, FileForm, FilePage
from inference.adapters.intake import add_uploaded_version, pools_with_adapters
from inference.adapters.lifecycle import add_adapter
from inference.adapters.lists import find_adapter
from inference.models.adapter import Adapter, AdapterVersion
from inference.models.catalog import models_visible_to
from inference.uploads.bounds import MAX_PART_BYTES, upload_bytes_allowed
from tenants.models import Tenant
from tenants.permissions import Permission


class VersionForm(FileForm):
    """A file that becomes a version."""


# Beside a model that may be chosen all the same: the version waits for one.
_NO_WORKER: Final = "no worker takes adapters now"


class NewAdapterForm(FileForm):
    unique_field = "slug"

    slug = forms.CharField(
        label="Name",
        max_length=100,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "off"}),
    )
    model = forms.ChoiceField(help_text="The served model that it was trained on.")
    field_order = ("slug", "model", "file")

    def __init__(self, *args: Any, tenant: Tenant, **more: Any) -> None:
        super().__init__(*args, tenant=tenant, **more)
        models = list(models_visible_to(tenant.id))
        ready = pools_with_adapters({model.pool for model in models})
        fitting = [model.name for model in models if model.pool in ready]
        choices = [
            (model.name, model.name if model.pool in ready else f"{model.name} ({_NO_WORKER})")
            for model in models
        ]
        if len(choices) != 1:
            choices = [("", "Choose a model"), *choices]
        self.fields["model"].choices = choices  # type: ignore[attr-defined]
        if len(fitting) == 1:
            self.initial.setdefault("model", fitting[0])
        self.fields[
            "slug"
        ].help_text = (
            f"Small letters and digits, with . _ - between. Requests name {tenant.slug}/<name>."
        )


class NewAdapterPage(FilePage):
    template_name = "dashboard/adapters/new.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.show(self._context(NewAdapterForm(tenant=self.tenant)))

    def post(self, request: HttpRequest) -> HttpResponse | UnscopedWork:
        form = self.form_of(request, NewAdapterForm)
        if (later := self.upload_first(form)) is not None:
            return later
        version = form.perform(lambda: self._made(form)) if form.is_valid() else None
        if version is None:
            return self.show(self._context(form), status=422)
        messages.success(request, f"{version.adapter.name} was created.")
        return self.go_to(address_of_version(self, version))

    def _made(self, form: FileForm) -> AdapterVersion:
        given = form.cleaned_data
        adapter = add_adapter(self.tenant, slug=given["slug"], model=given["model"])
        return add_uploaded_version(adapter, given[FILE_ID])

    def _context(self, form: FileForm) -> dict[str, Any]:
        return {"form": form, **bounds_shown(self), **self.write_access(Permission.WRITE_ADAPTERS)}


class NewVersionPage(FilePage):
    template_name = "dashboard/adapters/new_version.html"

    def get(self, request: HttpRequest, adapter_id: uuid.UUID) -> HttpResponse:
        adapter = find_adapter(adapter_id)
        return self.show(self._context(adapter, VersionForm(tenant=self.tenant)))

    def post(self, request: HttpRequest, adapter_id: uuid.UUID) -> HttpResponse | UnscopedWork:
        adapter = find_adapter(adapter_id)
        form = self.form_of(request, VersionForm)
        if (later := self.upload_first(form)) is not None:
            return later
        version = None
        if form.is_valid():
            file_id = form.cleaned_data[FILE_ID]
            version = form.perform(lambda: add_uploaded_version(adapter, file_id))
        if version is None:
            return self.show(self._context(adapter, form), status=422)
        return self.go_to(address_of_version(self, version))

    def _context(self, adapter: Adapter, form: FileForm) -> dict[str, Any]:
        return {
            "adapter": adapter,
            "form": form,
            **bounds_shown(self),
            **self.write_access(Permission.WRITE_ADAPTERS),
        }


def bounds_shown(page: ChangingPage) -> dict[str, Any]:
    return {"most_bytes": upload_bytes_allowed(page.tenant), "most_at_once": MAX_PART_BYTES}


def address_of_version(page: ChangingPage, version: AdapterVersion) -> str:
    args = [page.tenant.id, version.adapter_id, version.id]
    return reverse("dashboard:adapter-version", args=args)
