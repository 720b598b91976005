"""What an operator's list says where it has nothing to show."""

import pytest
from control_plane.operator_site.sidebar import linked_models
from django.apps import apps
from django.test import Client
from django.urls import reverse

from inference.models import DeadLetter, Pool
from tenants.models import AuditEvent

pytestmark = pytest.mark.django_db


def page(client: Client, model: type, **query: str) -> str:
    options = model._meta  # type: ignore[attr-defined]
    listing = reverse(f"admin:{options.app_label}_{options.model_name}_changelist")
    answer = client.get(listing, query)
    assert answer.status_code == 200
    return answer.content.decode()


def test_every_list_names_what_it_has_none_of(operator: Client) -> None:
    # The operator is a user, and signing in was audited.
    for label in linked_models() - {"tenants.User", "tenants.AuditEvent"}:
        model = apps.get_model(label)
        assert f"No {model._meta.verbose_name_plural}." in page(operator, model), label


def test_a_search_without_a_match_offers_to_reset_it(operator: Client) -> None:
    assert "Reset filters" not in page(operator, DeadLetter)
    shown = page(operator, DeadLetter, q="nonesuch")
    assert "No dead letters match" in shown and "Reset filters" in shown


def test_only_a_list_that_can_be_added_to_offers_it(operator: Client) -> None:
    assert reverse("admin:inference_pool_add") in page(operator, Pool)
    assert reverse("admin:inference_deadletter_add") not in page(operator, DeadLetter)


def test_a_page_after_the_last_is_not_an_empty_list(operator: Client) -> None:
    assert "No more audit events." in page(operator, AuditEvent, p="9")
