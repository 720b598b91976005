"""What callers tried on others' management APIs: SQL in the place of a key or in an address."""

import pytest

from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey
from tests.support.api_client import ApiClient
from tests.support.two_tenants import House

SQL = (
    "' OR '1'='1",
    "'; DROP TABLE tenants_apikey; --",
    "pk-aaaaaaaaaaaaaaaa-' UNION SELECT digest FROM tenants_apikey --",
    "pk-%' OR public_id LIKE '%",
    "x'||pg_sleep(10)||'",
)


@pytest.mark.parametrize("text", SQL)
def test_sql_is_no_key_and_is_not_repeated(acme: House, text: str) -> None:
    before = stored()
    client = ApiClient(acme.tenant.id, key=text)
    for method, path in (("GET", "keys"), ("POST", "keys"), ("GET", "/api/v1/me")):
        answer = client.send(method, path, None)
        assert answer.status_code == 401
        assert text not in answer.content.decode()
    assert stored() == before


@pytest.mark.parametrize("text", SQL)
@pytest.mark.parametrize("path", ["keys", "projects", "audit-events", "requests", "usage"])
def test_sql_in_a_filter_is_a_refused_value(acme: House, path: str, text: str) -> None:
    owner = ApiClient(acme.tenant.id, user=acme.people["owner"])
    names = ("cursor", "limit", "project", "name", "ordering", "from", "group_by", "search")
    for name in names:
        answer = owner.get(path, **{name: text})
        assert answer.status_code in {200, 400, 404}, (path, name, answer.content)
        if answer.status_code == 400:
            assert answer.json()["error"]["param"]


def stored() -> list[object]:
    with operator_scope("test"):
        return list(ApiKey.objects.order_by("id").values())
