"""Names of adapters as callers send them, and which of two versions answers."""

from collections import Counter

import pytest

from gpu_workers.protocol.policy import AdapterPolicy, AdapterVersionPolicy
from inference.admission.adapters import AdapterName, Turns, choose

HOSTILE = [
    "acme",
    "acme/",
    "/support",
    "acme//support",
    "acme/../support",
    "acme/..",
    "acme/x/y",
    "../acme/support",
    "ACME/support",
    "acme/Support",
    "аcme/support",  # a Cyrillic a
    "acme/ѕupport",  # a Cyrillic s
    "acme/support\u0661",  # an Arabic digit
    "acme/support\n",
    "acme/support\x00",
    " acme/support",
    "acme/support@",
    "acme/support@0",
    "acme/support@-1",
    "acme/support@+1",
    "acme/support@01",
    "acme/support@1.0",
    "acme/support@1e3",
    "acme/support@\u0661",
    "acme/support@\u00b2",
    "acme/support@1@2",
    "acme/support@latest",
    "acme/support@9999999999",
    "acme/support@999999999999",
    "acme/" + "x" * 10_000,
    "x" * 10_000 + "/support",
    "acme/support@" + "9" * 10_000,
    "{m:pool}/support",
    "acme/*",
]


def a_policy(**shares: int) -> AdapterPolicy:
    versions = [
        AdapterVersionPolicy(number=int(name[1:]), adapter=name, permille=share)
        for name, share in shares.items()
    ]
    return AdapterPolicy(
        name="acme/support", tenant_id="acme", model="base", created_at=1, versions=versions
    )


def chosen(policy: AdapterPolicy, sticky: str, turns: Turns) -> int:
    found = choose(policy, None, sticky, turns)
    assert found is not None
    return found.version.number


def test_a_name_may_end_in_a_version() -> None:
    assert AdapterName.parsed("acme/support") == AdapterName(
        name="acme/support", slug="acme", version=None
    )
    assert AdapterName.parsed("acme-2/support_v1.2@37") == AdapterName(
        name="acme-2/support_v1.2", slug="acme-2", version=37
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_adapters_name_is_none(name: str) -> None:
    assert AdapterName.parsed(name) is None


@pytest.mark.parametrize("canary", [1, 100, 250, 500, 999])
@pytest.mark.parametrize("requests", [1_000, 10_000])
def test_requests_are_shared_out_within_one_percent(canary: int, requests: int) -> None:
    policy, turns = a_policy(v1=1000 - canary, v2=canary), Turns()
    counts = Counter(chosen(policy, "", turns) for _ in range(requests))
    assert counts[2] == pytest.approx(requests * canary / 1000, abs=requests / 100)
    # Much nearer than by chance, which strays by 30 of 10,000 at 10 percent.
    assert abs(counts[2] - requests * canary / 1000) <= 5


def test_ten_thousand_people_are_shared_out_within_one_percent() -> None:
    policy, turns = a_policy(v1=900, v2=100), Turns()
    counts = Counter(chosen(policy, f"user-{number}", turns) for number in range(10_000))
    assert abs(counts[2] - 1_000) <= 100


def test_who_is_the_same_gets_the_same_version() -> None:
    policy = a_policy(v1=500, v2=500)
    first = {name: chosen(policy, name, Turns()) for name in map(str, range(200))}
    again = {name: chosen(policy, name, Turns()) for name in map(str, range(200))}
    assert first == again
    assert set(first.values()) == {1, 2}


def test_a_share_that_grows_takes_the_new_version_from_nobody() -> None:
    had: set[str] = set()
    for share in (50, 100, 300, 600, 900, 999):
        policy = a_policy(v1=1000 - share, v2=share)
        have = {name for name in map(str, range(1_000)) if chosen(policy, name, Turns()) == 2}
        assert had <= have
        had = have


def test_another_canary_begins_with_other_people() -> None:
    second = a_policy(v1=900, v2=100)
    third = a_policy(v2=900, v3=100)
    names = list(map(str, range(2_000)))
    first_sample = {name for name in names if chosen(second, name, Turns()) == 2}
    second_sample = {name for name in names if chosen(third, name, Turns()) == 3}
    assert len(first_sample & second_sample) < len(first_sample) / 2


def test_a_version_that_is_named_answers_whatever_the_shares_are() -> None:
    policy = a_policy(v1=1000, v2=0)
    found = choose(policy, 2, "", Turns())
    assert found is not None
    assert found.label == "acme/support@2"
    assert choose(policy, 3, "", Turns()) is None


def test_an_adapter_without_traffic_answers_nobody() -> None:
    assert choose(a_policy(v1=0), None, "", Turns()) is None
    assert choose(a_policy(), None, "somebody", Turns()) is None


def test_any_text_is_good_to_stick_to() -> None:
    policy = a_policy(v1=500, v2=500)
    for sticky in ("\ud800", "\x00", "é" * 10_000):
        assert chosen(policy, sticky, Turns()) in (1, 2)
