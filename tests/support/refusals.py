"""What a refusal is known by: its code, field and constraint. Its sentence is for people."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import DatabaseError

from tenants.errors import Conflict, NotPermitted, TenantsError


@contextmanager
def raises_invalid(code: str, *fields: str, **params: object) -> Iterator[None]:
    """`ValidationError` with this code at each of these fields, or at none, and with nothing else.
    Of the `params` of its message those given here are compared."""
    with pytest.raises(ValidationError) as caught:
        yield
    found = _by_field(caught.value)
    codes = {field: [error.code for error in errors] for field, errors in found.items()}
    assert codes == {field: [code] for field in fields or [NON_FIELD_ERRORS]}
    for (error,) in found.values():
        assert _those_of(params, error.params or {}) == params


@contextmanager
def raises_conflict(code: str, param: str | None = None, **params: object) -> Iterator[None]:
    """`Conflict` with this code, at this field or none. Of its `params` those given here are
    compared."""
    with _refused(Conflict, code, param, params):
        yield


@contextmanager
def raises_not_permitted(code: str, param: str | None = None, **params: object) -> Iterator[None]:
    """The same for `NotPermitted`."""
    with _refused(NotPermitted, code, param, params):
        yield


@contextmanager
def database_refuses(
    error: type[psycopg.Error] = psycopg.IntegrityError,
    *,
    constraint: str | None = None,
    **detail: object,
) -> Iterator[None]:
    """PostgreSQL's refusal, told by Django or by psycopg. `error` is psycopg's name of an SQLSTATE,
    such as `LockNotAvailable`, or of a class of them; `constraint` is what the refusal names: a
    constraint of the table, or a trigger or its rule, or nothing. What it tells in `DETAIL`, as our
    triggers do in JSON, is compared where it is given."""
    with pytest.raises((DatabaseError, psycopg.Error)) as caught:
        yield
    told = caught.value
    refusal = told if isinstance(told, psycopg.Error) else told.__cause__
    assert isinstance(refusal, error), f"{refusal!r}, expected {error.__name__}"
    assert refusal.diag.constraint_name == constraint
    if detail:
        assert json.loads(refusal.diag.message_detail or "{}") == detail


@contextmanager
def _refused(
    kind: type[TenantsError], code: str, param: str | None, params: Mapping[str, object]
) -> Iterator[None]:
    with pytest.raises(kind) as caught:
        yield
    assert (caught.value.code, caught.value.param) == (code, param)
    assert _those_of(params, caught.value.params) == params


def _by_field(error: ValidationError) -> dict[str, list[ValidationError]]:
    if hasattr(error, "error_dict"):
        return error.error_dict
    return {NON_FIELD_ERRORS: error.error_list}


def _those_of(wanted: Mapping[str, object], params: Mapping[str, Any]) -> dict[str, object]:
    return {name: value for name, value in params.items() if name in wanted}
