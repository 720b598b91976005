import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from inference.models import ServedModel
from tenants.billing.models import Price
from tenants.billing.pricing.price_book import enter
from tenants.models import ApiKey, Tenant, Tier, User

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]


def seed(*arguments: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("seed_demo", "--json", *arguments, stdout=out)
    facts: dict[str, Any] = json.loads(out.getvalue())
    return facts


@pytest.fixture
def demo_env(tmp_path: Path) -> Path:
    return tmp_path / "demo.env"


def write(demo_env: Path, facts: dict[str, Any]) -> None:
    lines = [f"PENSTOCK_{name.upper()}={value}" for name, value in facts.items() if value]
    demo_env.write_text("# of the run before\n" + "\n".join(lines) + "\n")


def test_an_empty_database_gets_the_whole_demo(demo_env: Path) -> None:
    facts = seed("--existing", str(demo_env))
    user = User.objects.get(email=facts["operator_email"])
    assert user.is_superuser and user.check_password(facts["operator_password"])
    acme, globex = (ApiKey.objects.find(facts[name]) for name in ("acme_key", "globex_key"))
    assert acme is not None and acme.project.tenant.name == "Acme"
    assert acme.project.tenant.tier.name == "premium"
    assert globex is not None and globex.project.tenant.tier.name == "standard"
    assert set(ServedModel.objects.values_list("name", "pool")) == {
        ("penstock-demo", "penstock-demo"),
        ("sim", "sim"),
    }
    simulated = ServedModel.objects.get(name="sim")
    assert simulated.capabilities == ["chat", "completions"]
    assert Tier.objects.count() == 4
    assert set(Price.objects.values_list("model", "effective_until")) == {
        ("penstock-demo", None),
        ("sim", None),
    }


def test_each_tenant_has_an_owner_who_can_sign_in_and_stays_as_they_are(demo_env: Path) -> None:
    facts = seed("--existing", str(demo_env))
    for name, tenant in (("acme", "Acme"), ("globex", "Globex")):
        owner = User.objects.get(email=facts[f"{name}_email"])
        assert owner.check_password(facts[f"{name}_password"]) and not owner.is_staff
        [membership] = owner.memberships.select_related("tenant")
        assert (membership.tenant.name, membership.role) == (tenant, "owner")
    write(demo_env, facts)
    owner.set_password("chosen by the owner since")
    owner.save()
    assert seed("--existing", str(demo_env))["globex_password"] is None
    owner.refresh_from_db()
    assert owner.check_password("chosen by the owner since")
    assert owner.memberships.count() == 1


def test_a_price_that_was_there_before_its_model_stays() -> None:
    mine = Price(
        model="sim",
        prompt_micros_per_million_tokens=1,
        cached_micros_per_million_tokens=1,
        completion_micros_per_million_tokens=1,
    )
    enter(mine)
    seed()
    assert Price.objects.get(model="sim").prompt_micros_per_million_tokens == 1


def test_seeding_again_keeps_everything(demo_env: Path) -> None:
    first = seed()
    write(demo_env, first)
    second = seed("--existing", str(demo_env))
    passwords = ("operator_password", "acme_password", "globex_password")
    assert second == first | dict.fromkeys(passwords)
    assert (ApiKey.objects.count(), Tenant.objects.count(), User.objects.count()) == (2, 2, 3)


def test_a_key_that_was_lost_or_revoked_is_made_anew(demo_env: Path) -> None:
    first = seed()
    revoked = ApiKey.objects.find(first["acme_key"])
    assert revoked is not None
    revoked.revoke()
    write(demo_env, first | {"globex_key": None})
    second = seed("--existing", str(demo_env))
    assert second["acme_key"] != first["acme_key"]
    assert second["globex_key"] != first["globex_key"]
    assert ApiKey.objects.find(second["acme_key"]) is not None


def test_known_keys_are_brought_back_into_a_new_database(demo_env: Path) -> None:
    first = seed()
    write(demo_env, first)
    ApiKey.objects.all().delete()
    User.objects.all().delete()
    second = seed("--existing", str(demo_env))
    # What was pasted and noted goes on working.
    assert second == first
    assert User.objects.get(is_staff=True).check_password(first["operator_password"])


def test_another_tenants_key_is_not_taken_for_ones_own(demo_env: Path) -> None:
    first = seed()
    write(demo_env, first | {"acme_key": first["globex_key"]})
    second = seed("--existing", str(demo_env))
    assert second["acme_key"] != second["globex_key"]
    acme = ApiKey.objects.find(second["acme_key"])
    assert acme is not None and acme.project.tenant.name == "Acme"


def test_a_changed_password_is_left_alone(demo_env: Path) -> None:
    first = seed()
    write(demo_env, first)
    user = User.objects.get(is_staff=True)
    user.set_password("an operator's own password")
    user.save()
    assert seed("--existing", str(demo_env))["operator_password"] is None
    user.refresh_from_db()
    assert user.check_password("an operator's own password")


def test_a_further_model_comes_into_the_catalogue() -> None:
    seed("--model", "org/model", "--model", "penstock-demo")
    assert ServedModel.objects.get(name="org/model").pool_id == "org/model"
    assert ServedModel.objects.count() == 3
    with pytest.raises(CommandError):
        call_command("seed_demo", "--model", "{braces}")
    assert ServedModel.objects.count() == 3


def test_the_operators_address_can_be_chosen() -> None:
    assert seed("--operator-email", "Ops@Example.org")["operator_email"] == "ops@example.org"
    with pytest.raises(CommandError):
        call_command("seed_demo", "--operator-email", "nobody")
    assert User.objects.get(is_staff=True).email == "ops@example.org"
