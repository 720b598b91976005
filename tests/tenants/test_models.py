import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from tenants.access.api_keys import issue_api_key
from tenants.access.default_tiers import DEFAULT_TIERS, ensure_default_tiers
from tenants.models import ApiKey, Project, Tenant, Tier, User

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]


def test_an_email_address_is_one_login_in_any_case() -> None:
    alice = User.objects.create_user("Alice@Acme.example", "correct horse battery")
    assert alice.email == "alice@acme.example"
    assert User.objects.get_by_natural_key("ALICE@acme.example") == alice
    with pytest.raises(IntegrityError), transaction.atomic():
        User.objects.bulk_create([User(email="ALICE@ACME.EXAMPLE")])


def test_default_tiers_are_the_four_and_pass_their_own_validation() -> None:
    ensure_default_tiers()
    for tier in Tier.objects.all():
        tier.full_clean()
    assert {tier.name for tier in Tier.objects.all()} == {"free", "standard", "premium", "batch"}
    assert len(DEFAULT_TIERS) == 4


def test_default_tiers_leave_an_operators_change_alone() -> None:
    ensure_default_tiers()
    Tier.objects.filter(name="free").update(requests_per_minute=5)
    ensure_default_tiers()
    assert Tier.objects.get(name="free").requests_per_minute == 5


def test_a_default_output_above_the_maximum_is_refused() -> None:
    ensure_default_tiers()
    tier = Tier.objects.get(name="free")
    tier.default_max_output_tokens = tier.max_output_tokens + 1
    with pytest.raises(ValidationError) as refused:
        tier.full_clean()
    assert list(refused.value.message_dict) == ["default_max_output_tokens"]


def test_a_tenant_with_a_project_cannot_be_deleted(acme: Project) -> None:
    with pytest.raises(ProtectedError):
        acme.tenant.delete()
    assert Tenant.objects.filter(id=acme.tenant_id).exists()


def test_a_key_is_found_only_if_it_is_genuine(acme: Project) -> None:
    issued = issue_api_key(acme)
    other = issue_api_key(acme)
    assert ApiKey.objects.find(issued.key) == issued.record
    assert ApiKey.objects.find("nonsense") is None
    # The right public id, another key's digest.
    ApiKey.objects.filter(id=issued.record.id).update(secret_digest=other.record.secret_digest)
    assert ApiKey.objects.find(issued.key) is None


def test_a_keys_text_shows_only_enough_to_recognise_it(acme: Project) -> None:
    issued = issue_api_key(acme)
    assert str(issued.record) == f"pk-{issued.record.public_id}-…{issued.key[-4:]}"
