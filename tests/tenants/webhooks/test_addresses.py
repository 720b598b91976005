"""Where webhooks may go: the text of a URL, and the addresses of its host."""

import ipaddress
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from tenants.webhooks.addresses import (
    AddressRefused,
    Unresolvable,
    UrlRefused,
    check_reachable,
    is_public,
    parse_url,
)

Resolve = Callable[..., list[str]]
PUBLIC = "93.184.216.34"
V4 = ipaddress.IPv4Address
V6 = ipaddress.IPv6Address


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.com/penstock",
        "https://hooks.example.com",
        "https://HOOKS.example.com:8443/a/b?c=d&e=%20",
        "https://xn--bcher-kva.example/",
        "https://hooks.example.com./",
        f"https://{PUBLIC}/",
        "https://[2606:4700::1111]/",
    ],
)
def test_a_plain_url_is_taken(url: str) -> None:
    target = parse_url(url)
    assert target.is_https and target.path.startswith("/")


def test_a_url_is_sent_in_the_parts_that_were_checked() -> None:
    target = parse_url("https://Hooks.Example.com./a?b=c")
    assert (target.host, target.port, target.path) == ("hooks.example.com", 443, "/a?b=c")
    assert parse_url("https://hooks.example.com?b").path == "/?b"


@pytest.mark.parametrize(
    ("url", "codes"),
    [
        ("http://hooks.example.com/", "scheme"),
        ("ftp://hooks.example.com/", "scheme"),
        ("//hooks.example.com/", "scheme"),
        ("hooks.example.com", "scheme"),
        ("https://user:secret@hooks.example.com/", "user_name"),
        ("https://hooks.example.com@127.0.0.1/", "user_name"),
        ("https://hooks.example.com/#top", "fragment"),
        ("https://hooks.example.com:25/", "port"),
        ("https://hooks.example.com:99999/", "no_url"),
        ("https://hooks.example.com:x/", "no_url"),
        ("https:///path", "host"),
        ("https://", "host"),
        ("https://hooks..example.com/", "host"),
        ("https://-.example.com/", "host"),
        ("https://hooks.example.com\\@127.0.0.1/", "letters"),
        ("https://hooks.example.com/a b", "letters"),
        ("https://hooks.example.com/\nHost: x", "letters"),
        ("https://bücher.example/", "letters"),
        ("https://redis/", "no_dot"),
        ("https://localhost/", "no_dot"),
        ("https://2130706433/", "ipv4"),
        ("https://0x7f000001/", "ipv4"),
        ("https://0x7f.1/", "ipv4"),
        ("https://127.1/", "ipv4"),
        ("https://0177.0.0.1/", "ipv4"),
        ("https://1.2.3.4.5/", "ipv4"),
        ("https://hooks.example.1/", "ipv4"),
        ("https://[fe80::1%25eth0]/", "ipv6|letters|no_url"),
        ("https://[::1/", "no_url"),
        ("https://[hooks.example.com]/", "no_url|ipv6"),
    ],
)
def test_what_could_mean_something_else_is_no_url(url: str, codes: str) -> None:
    with pytest.raises(UrlRefused) as refused:
        parse_url(url)
    assert refused.value.code in codes.split("|")  # Pythons differ in what they read as a URL


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0"),
        *("100.100.100.200", "192.0.0.192", "198.18.0.1", "224.0.0.1", "255.255.255.255"),
        *("168.63.129.16", "203.0.113.1", "[::1]", "[::]", "[fe80::1]", "[fc00::1]", "[ff02::1]"),
        *("[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[64:ff9b::10.0.0.1]", "[64:ff9b:1::1]"),
        *("[2002:7f00:1::]", "[::127.0.0.1]", "[2001::1]", "[2001:db8::1]", "[fec0::1]"),
    ],
)
def test_an_address_that_is_not_public_is_refused_at_once(host: str) -> None:
    with pytest.raises(AddressRefused) as refused:
        check_reachable(f"https://{host}/", owner="acme")
    assert refused.value.code == "not_public"


@pytest.mark.parametrize(
    "address", [PUBLIC, "2606:4700::1111", f"64:ff9b::{PUBLIC}", f"::ffff:{PUBLIC}"]
)
def test_a_host_with_a_public_address_is_taken(resolve: Resolve, address: str) -> None:
    resolve("hooks.example.com", [address])
    assert check_reachable("https://hooks.example.com/", owner="acme").host == "hooks.example.com"


@pytest.mark.parametrize("address", ["10.0.0.1", "::1", "::ffff:10.0.0.1"])
def test_one_bad_address_among_good_ones_is_enough(resolve: Resolve, address: str) -> None:
    resolve("hooks.example.com", [PUBLIC, address])
    with pytest.raises(AddressRefused) as caught:
        check_reachable("https://hooks.example.com/", owner="acme")
    assert address not in str(caught.value)  # nobody learns a private network's names here


def test_a_host_without_an_address_is_refused(resolve: Resolve) -> None:
    with pytest.raises(Unresolvable) as refused:
        check_reachable("https://nowhere.example.com/", owner="acme")
    assert refused.value.code == "no_address"


def test_an_operators_own_public_network_is_refused(resolve: Resolve, settings: Settings) -> None:
    settings.PENSTOCK_WEBHOOK_DENIED_NETWORKS = (ipaddress.ip_network("93.184.216.0/24"),)
    resolve("hooks.example.com", [f"::ffff:{PUBLIC}"])
    with pytest.raises(AddressRefused) as refused:
        check_reachable("https://hooks.example.com/", owner="acme")
    assert refused.value.code == "denied_network"


@pytest.mark.usefixtures("loopback_allowed")
def test_for_development_this_machine_may_be_reached_and_no_other(resolve: Resolve) -> None:
    resolve("hooks.example.com", [PUBLIC])
    for url in ("http://127.0.0.1:8000/", "http://[::1]:8000/", "https://127.0.0.1:8000/"):
        assert check_reachable(url, owner="acme").port == 8000
    for url in ("http://hooks.example.com/", "http://10.0.0.1/", "https://10.0.0.1/"):
        with pytest.raises(AddressRefused):
            check_reachable(url, owner="acme")


SPECIAL = [
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
    *("172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"),
]


@given(st.sampled_from(SPECIAL).flatmap(lambda net: st.ip_addresses(v=4, network=net)))
def test_no_way_of_writing_it_makes_a_special_address_public(
    special: ipaddress.IPv4Address,
) -> None:
    number = int(special)
    assert not is_public(special)
    assert not is_public(V6((0xFFFF << 32) | number))  # ::ffff:0:0/96
    assert not is_public(V6((0x64FF9B << 96) | number))  # 64:ff9b::/96
    assert not is_public(V6((0x2002 << 112) | (number << 80)))  # 2002::/16
    assert not is_public(V6(number))  # ::/96


@given(st.ip_addresses(v=4))
def test_what_is_public_is_so_for_python_too(address: ipaddress.IPv4Address) -> None:
    assert address.is_global or not is_public(address)


@given(st.ip_addresses(v=6))
def test_of_ipv6_only_global_unicast_is_public(address: ipaddress.IPv6Address) -> None:
    embeds = address.ipv4_mapped or address in ipaddress.IPv6Network("64:ff9b::/96")
    if is_public(address) and not embeds:
        assert int(address) >> 125 == 1 and address.is_global
