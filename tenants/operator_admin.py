"""Base classes of the operators' admin pages."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import IntegerField, Model
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.admin import ModelAdmin
from unfold.paginator import InfinitePaginator

from tenants.audit.triggers import must_be_audited

# The permission of operators who book money.
MAY_BOOK: Final = "billing.add_ledgertransaction"


class OperatorAdmin(ModelAdmin):  # type: ignore[misc]
    """A record that operators edit. Lists stay fast with thousands of tenants: a choice that could
    be long is an autocomplete, in filters too."""

    compressed_fields = True
    warn_unsaved_form = True
    list_filter_submit = True
    list_per_page = 50

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """Show whole numbers with their digits in groups, as everywhere else."""
        return [self._grouped(column) for column in super().get_list_display(request)]

    def _grouped(self, column: Any) -> Any:
        try:
            field = self.opts.get_field(column)
        except FieldDoesNotExist:
            return column
        if not isinstance(field, IntegerField) or field.choices:
            return column

        @admin.display(description=field.verbose_name, ordering=column)
        def grouped(record: Model) -> str | None:
            number = getattr(record, column)
            return None if number is None else f"{number:,}"

        grouped.__name__ = column
        return grouped

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Show a record's form. Raises `Http404` for an id that none can have: buttons look the
        record up before Django does."""
        if object_id is not None:
            try:
                self.opts.pk.to_python(unquote(object_id))
            except ValidationError:
                raise Http404(f"No {self.opts.verbose_name} has such an id.") from None
        return super().changeform_view(request, object_id, *args, **kwargs)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        """Lead to the audit log, which has what came by every door; what is not audited has only
        what was done here."""
        if not must_be_audited(self.model):
            answer: HttpResponse = super().history_view(request, object_id, extra_context)
            return answer
        narrowed = {"record_kind": self.model._meta.label, "q": unquote(object_id)}
        return redirect(f"{reverse('admin:tenants_auditevent_changelist')}?{urlencode(narrowed)}")

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
        """Return a page that asks for confirmation. It posts to its own address: `sure=yes`, the
        form's fields and the fields of the request given in `repeat`."""
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "opts": self.opts,
            "text": text,
            "button": button,
            "form": form or forms.Form(),
            "media": self.media + (form.media if form else forms.Media()),
            "repeat": [
                (name, value) for name, values in (repeat or {}).items() for value in values
            ],
            "is_final": is_final,
            "back": list_address(self.model),
        }
        return TemplateResponse(request, "admin/ask_first.html", context)

    def ask_first_of_list(self, request: HttpRequest, **question: Any) -> HttpResponse:
        """Return such a page for an action of a list, which is then done with the same rows."""
        names = ("action", "_selected_action", "select_across", "index")
        given = {name: request.POST.getlist(name) for name in names if name in request.POST}
        return self.ask_first(request, repeat=given, **question)

    def is_sure(self, request: HttpRequest) -> bool:
        return request.method == "POST" and request.POST.get("sure") == "yes"

    def back_to(self, record: Model) -> HttpResponse:
        return redirect(page_address(record))

    def show_understood(
        self, request: HttpRequest, form: forms.Form, **question: Any
    ) -> HttpResponse:
        """Return such a page for a form that is valid: what is posted from there is
        `has_understood`."""
        given = {name: request.POST.getlist(name) for name in form.fields}
        return self.ask_first(request, repeat={"understood": ["yes"], **given}, **question)

    def has_understood(self, request: HttpRequest) -> bool:
        return "understood" in request.POST


def list_address(model: type[Model]) -> str:
    """Return the address of the list of a model's records."""
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def page_address(record: Model) -> str:
    """Return the address of a record's own page."""
    page = f"admin:{record._meta.app_label}_{record._meta.model_name}_change"
    return reverse(page, args=[quote(record.pk)])


def full_name(record: Model) -> str:
    """Return a label that tells the record from those of other tenants."""
    return str(getattr(record, "full_name", record))


class NeverDeleted(OperatorAdmin):
    """A record that others refer to permanently."""

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class AppendOnlyAdmin(NeverDeleted):
    """A record that operators add and nobody edits."""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ReadOnlyAdmin(AppendOnlyAdmin):
    """A record that operators view and do not add or edit."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class LogAdmin(ReadOnlyAdmin):
    """A record of which there are millions: a page of fifty does not count them."""

    paginator = InfinitePaginator
    show_full_result_count = False
