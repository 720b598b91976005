"""fsck goes on from what it has verified and signed: a night's work is a day's records, and what is
cut short or forged costs no more than time."""

import datetime
import io
import json
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from redis import Redis

from tenants import fsck
from tenants.audit.checkpoints import Place, Step, verify_from_checkpoints
from tenants.billing.ledger import chain, credit
from tenants.billing.ledger.chain import LedgerChains
from tenants.billing.ledger.posting import UsageCharge, post_usage
from tenants.fsck import run_checks, snapshot
from tenants.isolation.scoping import operator_scope
from tenants.models import ChainCheckpoint, Project

pytestmark = pytest.mark.django_db(transaction=True)
DAY = datetime.date(2026, 11, 21)


def use(project: Project, times: int = 1) -> None:
    for _ in range(times):
        with operator_scope("test"):
            charge = UsageCharge(
                tenant_id=project.tenant_id, model="m", day=DAY, nanos=30, requests=2
            )
            post_usage([charge], batch_id=uuid.uuid4())


@pytest.fixture(autouse=True)
def logs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no records behind the usage that is posted here."""
    logs = {name: each for name, each in fsck.checks.items() if each.log is not None}
    assert set(logs) == {"audit log", "ledger"}
    monkeypatch.setattr(fsck, "checks", logs)


@pytest.fixture
def posted(policy_redis: Redis, acme: Project, globex: Project) -> Project:
    """Six transactions of Acme, one of Globex."""
    with operator_scope("test"):
        credit.top_up(acme.tenant_id, 50, reference="payment 1")
    use(acme, 5)
    use(globex)
    return acme


def forge(owner: psycopg.Connection[tuple[object, ...]], of: Project, sequence: int) -> None:
    owner.execute(
        "UPDATE billing_ledgertransaction SET memo = 'x' WHERE tenant_id = %s AND sequence = %s",
        [of.tenant_id, sequence],
    )


def found(*, whole: bool = False) -> list[str]:
    return [f"{each.check}: {each.problem}" for each in run_checks(whole=whole)]


def checkpoint(project: Project) -> ChainCheckpoint:
    with operator_scope("test"):
        return ChainCheckpoint.objects.get(log="ledger", chain=project.tenant_id)


class Counting(LedgerChains):
    """Notes from where on each page was read; fails where told to."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.begun_at: list[int] = []
        self._fail_at = fail_at

    def advance(self, chain: uuid.UUID, place: Place) -> Step:
        if place.sequence == self._fail_at:
            raise TimeoutError
        self.begun_at.append(place.sequence)
        return super().advance(chain, place)


def read_from(acme: Project, fail_at: int | None = None) -> list[int]:
    """Where the pages of Acme's chain began."""

    class OfAcme(Counting):
        def chains(self) -> Iterator[uuid.UUID]:
            yield acme.tenant_id

    log = OfAcme(fail_at)
    try:
        assert list(verify_from_checkpoints(log, snapshot)) == []
    except TimeoutError:
        assert fail_at is not None
    return log.begun_at


def test_a_night_reads_what_the_day_has_added(posted: Project) -> None:
    assert found() == []
    assert checkpoint(posted).sequence == 6
    use(posted, 2)
    assert read_from(posted) == [6]
    assert checkpoint(posted).sequence == 8
    assert found() == found(whole=True) == []


def test_what_is_cut_short_goes_on_where_it_was(
    posted: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "PAGE", 2)
    assert read_from(posted, fail_at=4) == [0, 2]
    assert checkpoint(posted).sequence == 4
    assert read_from(posted) == [4, 6]
    assert found() == []


def test_a_change_before_the_checkpoint_is_found_by_the_whole_run(
    posted: Project, owner: psycopg.Connection[tuple[object, ...]]
) -> None:
    assert found() == []
    forge(owner, posted, 2)
    assert found() == []
    wrong = (
        f"ledger: ledger transaction 2 of tenant {posted.tenant_id}: it is not as it was posted."
    )
    assert found(whole=True) == [wrong]
    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("fsck", "--whole", "--json", stdout=out)
    assert len(json.loads(out.getvalue())["findings"]) == 1


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE billing_ledgertransaction SET memo = 'forged' WHERE {of} AND sequence = 6",
        "UPDATE billing_ledgerentry SET requests = 9 WHERE {of} AND transaction_id ="
        " (SELECT id FROM billing_ledgertransaction WHERE {of} AND sequence = 6)",
        "UPDATE billing_ledgertransaction SET sequence = 60 WHERE {of} AND sequence = 6",
    ],
)
def test_the_record_that_was_verified_last_has_to_be_there_still(
    posted: Project, owner: psycopg.Connection[tuple[object, ...]], change: str
) -> None:
    assert found() == []
    owner.execute(change.format(of=f"tenant_id = '{posted.tenant_id}'"))
    for _ in range(2):
        told = found()
        assert "transaction 6" in told[0] and "as fsck found it before" in told[0]


@pytest.mark.parametrize(
    "change",
    [
        "SET sequence = 3, hash = (SELECT hash FROM billing_ledgertransaction"
        " WHERE tenant_id = chain AND sequence = 3)",
        "SET sums = '{}'",
        "SET log = 'ledger', signature = (SELECT signature FROM tenants_chaincheckpoint AS other"
        " WHERE other.log = 'ledger' AND other.chain <> it.chain LIMIT 1)",
    ],
)
def test_a_checkpoint_that_fsck_did_not_sign_is_told_of_and_all_is_read_again(
    posted: Project, owner: psycopg.Connection[tuple[object, ...]], change: str
) -> None:
    assert found() == []
    owner.execute(
        f"UPDATE tenants_chaincheckpoint AS it {change} WHERE it.log = 'ledger' AND it.chain = %s",
        [posted.tenant_id],
    )
    assert found() == [
        f"ledger: The checkpoint of the ledger {posted.tenant_id} is not one that fsck has signed."
    ]
    assert found() == [], "it is signed again"


def test_accounts_are_compared_with_all_that_was_ever_posted(
    posted: Project, owner: psycopg.Connection[tuple[object, ...]]
) -> None:
    assert found() == []
    use(posted)
    owner.execute(
        "UPDATE billing_ledgeraccount SET balance_nanos = balance_nanos + 1"
        " WHERE tenant_id = %s AND name = 'revenue'",
        [posted.tenant_id],
    )
    for _ in range(2):
        assert [each for each in found() if each.startswith("ledger")] == [
            f"ledger: The account revenue of tenant {posted.tenant_id} holds 181 nano-dollars, its "
            "entries come to 180."
        ]


def test_what_is_broken_is_told_of_each_night(
    posted: Project, owner: psycopg.Connection[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "PAGE", 2)
    forge(owner, posted, 3)
    for _ in range(2):
        (told,) = found()
        assert "transaction 3" in told
        assert checkpoint(posted).sequence == 2


def test_the_audit_log_goes_on_from_its_checkpoint_too(
    posted: Project,
) -> None:
    assert found() == []
    with operator_scope("test"):
        before = ChainCheckpoint.objects.get(log="audit log", chain=posted.tenant_id).sequence
        posted.name = "renamed"
        posted.save()
    assert found() == []
    with operator_scope("test"):
        after = ChainCheckpoint.objects.get(log="audit log", chain=posted.tenant_id).sequence
    assert 0 < before < after
    with psycopg.connect(settings.ENV.owner_database_url, autocommit=True) as owner:
        owner.execute("ALTER TABLE tenants_auditevent DISABLE TRIGGER USER")
        owner.execute("ALTER TABLE tenants_auditevent NO FORCE ROW LEVEL SECURITY")
        owner.execute(
            "UPDATE tenants_auditevent SET verb = 'x' WHERE tenant_id = %s AND sequence = %s",
            [posted.tenant_id, after],
        )
        owner.execute("ALTER TABLE tenants_auditevent FORCE ROW LEVEL SECURITY")
        owner.execute("ALTER TABLE tenants_auditevent ENABLE TRIGGER USER")
        owner.execute("ALTER TABLE tenants_auditevent ENABLE ALWAYS TRIGGER append_only")
    (told,) = found()
    assert f"event {after} of chain {posted.tenant_id}" in told
