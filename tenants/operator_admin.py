"""The shapes that every page of the operators' admin has."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.admin import ModelAdmin
from unfold.paginator import InfinitePaginator


class OperatorAdmin(ModelAdmin):  # type: ignore[misc]
    """A record that operators change. Lists stay quick with thousands of tenants: what could be a
    choice of many is an autocomplete, in filters too."""

    compressed_fields = True
    warn_unsaved_form = True
    list_filter_submit = True
    list_per_page = 50

    def formfield_for_foreignkey(
        self, db_field: Any, request: HttpRequest | None, **kwargs: Any
    ) -> Any:
        form_field = super().formfield_for_foreignkey(db_field, request, **kwargs)
        if form_field is not None:
            form_field.label_from_instance = full_name
        return form_field

    def ask_first(
        self,
        request: HttpRequest,
        *,
        title: str,
        text: str,
        button: str,
        form: forms.Form | None = None,
        repeat: Mapping[str, list[str]] | None = None,
        is_final: bool = False,
    ) -> HttpResponse:
        """A page between a button and what it does. It posts back to where it stands, with
        `sure=yes`, the form's fields and those of the request that are to `repeat`."""
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "opts": self.opts,
            "text": text,
            "button": button,
            "form": form or forms.Form(),
            "repeat": [
                (name, value) for name, values in (repeat or {}).items() for value in values
            ],
            "is_final": is_final,
            "back": reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"),
        }
        return TemplateResponse(request, "admin/ask_first.html", context)

    def is_sure(self, request: HttpRequest) -> bool:
        return request.method == "POST" and request.POST.get("sure") == "yes"

    def back_to(self, record: Model) -> HttpResponse:
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_change"
        return redirect(name, record.pk)


def full_name(record: Model) -> str:
    """How to tell a record from others where it is one choice among all tenants'."""
    return str(getattr(record, "full_name", record))


class NeverDeleted(OperatorAdmin):
    """A record that others refer to for ever."""

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class AppendOnlyAdmin(NeverDeleted):
    """A record that operators add and nobody changes."""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ReadOnlyAdmin(AppendOnlyAdmin):
    """A record that only machines write; operators look at it."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class LogAdmin(ReadOnlyAdmin):
    """One that there are millions of: nobody counts them to show fifty."""

    paginator = InfinitePaginator
    show_full_result_count = False
