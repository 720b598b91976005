"""Forms of the pages: fields as our components show them, and refusals of the verbs beside the
field they are about."""

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import IntegrityError, transaction
from django.forms.renderers import TemplatesSetting

from tenants.errors import TenantsError

_Result = TypeVar("_Result")


class Renderer(TemplatesSetting):
    form_template_name = "dashboard/components/form.html"
    field_template_name = "dashboard/components/field.html"


class ChoiceWhereUsed(forms.ChoiceField):
    """A choice that another field asks for: neither required nor, where it is shown, optional."""

    is_optional = False

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, **options)


class ChoicesWhereUsed(forms.MultipleChoiceField):
    """Several choices that another field asks for."""

    is_optional = False

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, widget=forms.CheckboxSelectMultiple, **options)


class PageForm(forms.Form):
    """A form of a page. `{{ form }}` is a summary of what is wrong, then the fields."""

    default_renderer = Renderer
    # Where an error belongs that names no field, e.g. a name that is taken already.
    unique_field = ""

    def perform(self, verb: Callable[[], _Result]) -> _Result | None:
        """Call a verb of the domain and return what it returns; None if it refused: then the form
        says why, and nothing was changed."""
        try:
            with transaction.atomic():
                return verb()
        except ValidationError as error:
            self._add_all(error)
        except TenantsError as error:
            self._add(error.param, error.message)
        except IntegrityError:
            self._add(self.unique_field, "This conflicts with what is there already.")
        return None

    def _add_all(self, error: ValidationError) -> None:
        by_field: dict[str, Any] = (
            error.error_dict if hasattr(error, "error_dict") else {NON_FIELD_ERRORS: [error]}
        )
        for field, errors in by_field.items():
            at = self.unique_field if field == NON_FIELD_ERRORS else field
            for each in errors:
                self._add(at, each)

    def _add(self, field: str | None, error: ValidationError | str) -> None:
        self.add_error(field if field in self.fields else None, error)


class FilterForm(PageForm):
    """What a list is narrowed to, as it stands in the address. No field is required; one that is
    wrong narrows nothing, and says so. Those that are named in `behind` are shown once somebody
    asks for them; one that is in use is always shown. What is named in `carried` stands in the
    address for other pages."""

    behind: ClassVar[tuple[str, ...]] = ()
    carried: ClassVar[tuple[str, ...]] = ()
    data: Any

    def __init__(self, data: Any) -> None:
        super().__init__(data, auto_id="filter_%s")
        for field in self.fields.values():
            field.required = False
            field.is_optional = False  # type: ignore[attr-defined]  # for its label

    def at_once(self) -> list[forms.BoundField]:
        return [field for field in self if not self._is_behind(field)]

    def on_demand(self) -> list[forms.BoundField]:
        return [field for field in self if self._is_behind(field)]

    def carried_along(self) -> dict[str, str]:
        return {name: value for name in self.carried if (value := self.data.get(name))}

    def in_force(self) -> dict[str, str]:
        """Return what of the address narrows the list, as it stands there, or is carried along."""
        narrowing = [name for name, value in self.cleaned_data.items() if value]
        return {name: self.data[name] for name in narrowing} | self.carried_along()

    def _is_behind(self, field: forms.BoundField) -> bool:
        return field.name in self.behind and not self.data.get(field.name)

    def chosen(self) -> dict[str, Any]:
        """Return the fields that narrow the list."""
        self.full_clean()
        return {name: value for name, value in self.cleaned_data.items() if value}
