import pytest
from redis import Redis

from tenants.models import ApiKey
from tests.support.projects import make_key


@pytest.fixture
def api_key(redis: Redis, operators_session: None) -> ApiKey:
    return make_key("Acme")
