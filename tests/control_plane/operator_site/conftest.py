"""An operator with a browser."""

import pytest
from django.test import Client

from tenants.models import Project, User
from tests.control_plane.operator_site.records import make_acme, make_one_of_each


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("ops@example.org", "correct horse battery"))
    return client


@pytest.fixture
def acme(db: None) -> Project:
    return make_acme()


@pytest.fixture
def one_of_each(acme: Project) -> None:
    """A record of every model that operators can see, Acme's where it is a tenant's."""
    make_one_of_each(acme)
