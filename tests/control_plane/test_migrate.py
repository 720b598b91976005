"""manage.py migrate on a database of another version."""

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder

pytestmark = pytest.mark.django_db(databases=["default", "owner"])


@pytest.fixture
def recorder() -> MigrationRecorder:
    return MigrationRecorder(connections["owner"])


def test_a_database_whose_migrations_diverge_is_refused(recorder: MigrationRecorder) -> None:
    recorder.record_unapplied("billing", "0001_initial")
    recorder.record_applied("billing", "0001_ledger")
    with pytest.raises(CommandError) as refused:
        call_command("migrate", verbosity=0)
    assert "billing.0001_ledger" in str(refused.value)
    assert "make down" in str(refused.value)
    assert ("billing", "0001_initial") not in recorder.applied_migrations()


def test_a_database_that_is_only_newer_is_left_as_it_is(recorder: MigrationRecorder) -> None:
    recorder.record_applied("billing", "0099_later")
    call_command("migrate", verbosity=0)
    assert ("billing", "0099_later") in recorder.applied_migrations()
