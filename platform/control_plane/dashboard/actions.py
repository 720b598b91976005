"""What pages do beside forms with fields: a button that does one thing, and one that asks first."""

from collections.abc import Callable
from typing import Any, TypeVar

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest

from control_plane.dashboard.forms import PageForm
from tenants.errors import TenantsError

_Result = TypeVar("_Result")


def attempt(request: HttpRequest, verb: Callable[[], _Result]) -> _Result | None:
    """Call a verb of the domain and return what it returns; None if it refused: then nothing was
    changed, and the next page says why."""
    try:
        with transaction.atomic():
            return verb()
    except TenantsError as error:
        messages.error(request, error.message)
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
    return None


class NameTyped(PageForm):
    """Asks for a name before what cannot be undone."""

    confirm_name = forms.CharField(
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})
    )

    def __init__(self, *args: Any, name: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self.name = name
        self.fields["confirm_name"].label = f"Type {name} to confirm"

    def clean_confirm_name(self) -> str:
        typed: str = self.cleaned_data["confirm_name"]
        if typed.strip() != self.name.strip():
            raise ValidationError(f"This is not {self.name}.", code="other_name")
        return typed
