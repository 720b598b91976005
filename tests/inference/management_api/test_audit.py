"""What people and keys change by the API is recorded as theirs."""

from collections.abc import Callable

from tenants.audit import seal_now
from tenants.models import ApiKey, AuditEvent
from tenants.scoping import operator_scope
from tests.inference.management_api.conftest import ApiClient
from tests.two_tenants import House


def newest(**of: object) -> AuditEvent:
    with operator_scope("test"):
        seal_now()
        events = AuditEvent.objects.filter(**of).select_related("personal")
        return events.latest("sequence")


def test_a_persons_change_tells_who_and_from_where(
    as_role: Callable[[str], ApiClient], acme: House
) -> None:
    admin = acme.people["admin"]
    assert as_role("admin").post("projects", {"name": "chatbot"}).status_code == 201
    event = newest(record_kind="tenants.Project", tenant=acme.tenant)
    assert (event.actor_kind, event.actor_id) == ("user", str(admin.pk))
    assert (event.personal.actor_name, event.personal.address) == (admin.email, "127.0.0.1")
    assert event.changed_fields["name"] == [None, "chatbot"]


def test_a_keys_change_tells_which_key(acme: House) -> None:
    key = acme.issue(scopes=["admin"])
    with operator_scope("test"):
        record = ApiKey.objects.find(key)
    assert record is not None
    made = ApiClient(acme.tenant.id, key=key).post("projects", {"name": "chatbot"})
    assert made.status_code == 201
    event = newest(record_kind="tenants.Project", tenant=acme.tenant)
    assert (event.actor_kind, event.actor_id) == ("api_key", str(record.pk))


def test_a_failed_sign_in_of_a_known_account_is_recorded(acme: House) -> None:
    admin = acme.people["admin"]
    wrong = {"email": admin.email, "password": "wrong"}
    assert ApiClient(acme.tenant.id).post("/api/v1/session", wrong).status_code == 401
    event = newest(record_id=str(admin.pk))
    assert (event.verb, event.tenant) == ("sign_in_failed", None)
