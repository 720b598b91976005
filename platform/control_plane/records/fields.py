"""DRF's fields, strict about JSON: a field takes values of its own type and converts none. DRF's
own take "yes" for true and 1 for "1", for the sake of forms; they are right for what is only shown
and for parameters of an address, which are text."""

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final, NoReturn

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.fields import empty

MAX_NAME_CHARACTERS: Final = 200

_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NUMBER: Final = re.compile(r"[0-9]+(\.0+)?")
_WORDS: Final = {dict: "object", list: "array", type(None): "null"}


class _Strict(serializers.Field[Any, Any, Any, Any]):
    json_type: ClassVar[type]
    default_error_messages = {
        "type": "expected {expected}, got {got}.",
        "null": "expected {expected}, got null.",
    }

    def to_internal_value(self, data: Any) -> Any:
        if type(data) is not self.json_type:
            self.fail("type", got=_word(type(data)))
        return super().to_internal_value(data)

    def fail(self, key: str, **facts: Any) -> NoReturn:
        super().fail(key, expected=_word(self.json_type), **facts)


class BooleanField(_Strict, serializers.BooleanField):
    json_type = bool


class IntegerField(_Strict, serializers.IntegerField):
    json_type = int
    default_error_messages = {
        "max_value": "expected int <= {max_value}.",
        "min_value": "expected int >= {min_value}.",
    }


class CharField(_Strict, serializers.CharField):
    """A text, taken as it is: what of it counts is the verb's to say."""

    json_type = str
    default_error_messages = {
        "blank": "expected str of length >= 1.",
        "max_length": "expected str of length <= {max_length}.",
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"trim_whitespace": False, **options})


class NameField(CharField):
    """What people call something: trimmed, and not empty."""

    default_error_messages = {
        "blank": "a name may not be empty.",
        "max_length": "expected at most {max_length} characters.",
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=True, max_length=MAX_NAME_CHARACTERS, **options)


class NullableCharField(CharField):
    """A text that may be missing: null in JSON, "" in the database."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_null=True, allow_blank=True, **options)

    def run_validation(self, data: Any = empty) -> Any:
        return super().run_validation(data) or ""

    def to_representation(self, value: str) -> Any:
        return super().to_representation(value) or None


class HexField(serializers.CharField):
    """Bytes, shown as hexadecimal digits."""

    def to_representation(self, value: Any) -> str:
        return bytes(value).hex()


class UUIDField(_Strict, serializers.UUIDField):
    json_type = str
    default_error_messages = {"invalid": "expected a UUID."}


class DateTimeField(_Strict, serializers.DateTimeField):
    """A moment, with its offset from UTC: nobody guesses a time zone."""

    json_type = str
    default_error_messages = {
        "invalid": "expected a date and time as 2030-01-31T12:00:00Z.",
        "naive": "expected a time with its offset from UTC, as 2030-01-31T12:00:00Z.",
    }

    def enforce_timezone(self, value: Any) -> Any:
        if value.tzinfo is None:
            self.fail("naive")
        return super().enforce_timezone(value)


class DateField(_Strict, serializers.DateField):
    """A day as 2030-01-31; Python reads more forms of ISO 8601."""

    json_type = str
    default_error_messages = {"invalid": "expected a day as 2030-01-31."}

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, str) and not _DAY.fullmatch(data):
            self.fail("invalid")
        return super().to_internal_value(data)


@extend_schema_field({"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}$"})
class MonthField(serializers.DateField):
    """A calendar month as 2030-01, only shown."""

    def __init__(self, **options: Any) -> None:
        super().__init__(format="%Y-%m", read_only=True, **options)


class NumberParameter(serializers.IntegerField):
    """A whole number in an address, in digits; Python takes spaces and underscores, too."""

    def to_internal_value(self, data: Any) -> Any:
        if not _NUMBER.fullmatch(data):
            self.fail("invalid")
        return super().to_internal_value(data)


class ListField(_Strict, serializers.ListField):
    json_type = list
    default_error_messages = {
        "min_length": "expected an array of length >= {min_length}.",
        "max_length": "expected an array of length <= {max_length}.",
    }

    def to_internal_value(self, data: Any) -> Any:
        # Before its elements, of which a body can hold thousands.
        if self.max_length is not None and type(data) is list and len(data) > self.max_length:
            self.fail("max_length", max_length=self.max_length)
        return super().to_internal_value(data)


class ChoiceField(_Strict, serializers.ChoiceField):
    """One of an enumeration, whose member the verb gets."""

    json_type = str
    default_error_messages = {"invalid_choice": "expected one of {choices}; got {input!r}."}

    def __init__(self, choices: Sequence[str], **options: Any) -> None:
        super().__init__(choices=choices, **options)

    def fail(self, key: str, **facts: Any) -> NoReturn:
        shown = str(facts.get("input"))[:80]
        known = ", ".join(map(str, self.choices))
        super().fail(key, **(facts | {"input": shown, "choices": known}))


class ConstantField(serializers.ChoiceField):
    """The same word in every answer, e.g. `object`, what kind of thing it is."""

    def __init__(self, word: str, **options: Any) -> None:
        super().__init__(choices=[word], read_only=True, **options)
        self.word = word

    def get_attribute(self, _instance: Any) -> str:
        return self.word


def _word(json_type: type) -> str:
    return _WORDS.get(json_type, json_type.__name__)
