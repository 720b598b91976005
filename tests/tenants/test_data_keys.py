"""The key that a tenant's blobs are sealed under: one a tenant, readable by nobody else, gone with
it."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import ProgrammingError, connections, transaction
from pytest_django import Settings

from tenants.encryption import SecretLost
from tenants.fsck import run_checks
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import DataKey, Project, Tenant
from tenants.offboarding.closing import close_tenant
from tenants.offboarding.export import tenant_records


def key_of(tenant: Tenant) -> bytes:
    with tenant_scope(tenant.id):
        return DataKey.objects.key_of(tenant)


def problems() -> list[str]:
    return [each.problem for each in run_checks() if each.check == "data keys"]


@pytest.mark.django_db
def test_a_tenant_has_one_key_and_no_other_tenant_has_it(acme: Project, globex: Project) -> None:
    first = key_of(acme.tenant)
    assert len(first) == 32
    assert key_of(acme.tenant) == first
    assert key_of(globex.tenant) != first
    assert problems() == []


@pytest.mark.django_db
def test_a_key_is_kept_encrypted_and_lies_behind_the_wall(acme: Project, globex: Project) -> None:
    key = key_of(acme.tenant)
    with tenant_scope(acme.tenant.id):
        kept = bytes(DataKey.objects.get().wrapped_key)
    assert key not in kept
    assert key.hex().encode() not in kept
    with tenant_scope(globex.tenant.id):
        assert not DataKey.objects.exists()


@pytest.mark.django_db
def test_the_web_role_neither_replaces_nor_deletes_a_key(acme: Project) -> None:
    key_of(acme.tenant)
    with tenant_scope(acme.tenant.id):
        for change in (
            lambda: DataKey.objects.update(wrapped_key=b"another"),
            lambda: DataKey.objects.all().delete(),
        ):
            with pytest.raises(ProgrammingError), transaction.atomic():
                change()


@pytest.mark.django_db
def test_a_new_secret_reads_what_the_one_before_it_encrypted(
    acme: Project, settings: Settings
) -> None:
    key, before = key_of(acme.tenant), settings.SECRET_KEY
    settings.SECRET_KEY = "another secret of 32 characters or more"
    with pytest.raises(SecretLost):
        key_of(acme.tenant)
    assert len(problems()) == 1
    settings.SECRET_KEY_FALLBACKS = [before]
    assert key_of(acme.tenant) == key
    assert problems() == []


@pytest.mark.django_db
def test_closing_destroys_the_key_and_there_is_never_another(acme: Project) -> None:
    key_of(acme.tenant)
    with operator_scope("test"):
        close_tenant(acme.tenant)
        assert not DataKey.objects.exists()
        with pytest.raises(Tenant.DoesNotExist):
            DataKey.objects.key_of(acme.tenant)
        assert not DataKey.objects.exists()
    assert problems() == []


@pytest.mark.django_db
def test_an_export_holds_no_key(acme: Project) -> None:
    key = key_of(acme.tenant)
    with tenant_scope(acme.tenant.id):
        told = json.dumps(list(tenant_records(acme.tenant)), default=str)
        kept = bytes(DataKey.objects.get().wrapped_key)
    assert key.hex() not in told
    assert kept.decode() not in told


@pytest.mark.django_db(transaction=True)
def test_those_who_ask_first_at_once_get_the_same_key(acme: Project) -> None:
    def ask(_: int) -> bytes:
        try:
            return key_of(acme.tenant)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(ask, range(8)))) == 1
