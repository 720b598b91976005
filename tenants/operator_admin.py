"""The two shapes that every page of the operators' admin has."""

from django.db.models import Model
from django.http import HttpRequest
from unfold.admin import ModelAdmin


class OperatorAdmin(ModelAdmin):  # type: ignore[misc]
    """A record that operators change."""

    compressed_fields = True
    warn_unsaved_form = True
    list_per_page = 50


class ReadOnlyAdmin(OperatorAdmin):
    """A record that only machines write; operators look at it."""

    # Counting a large table costs more than the page is worth.
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False
