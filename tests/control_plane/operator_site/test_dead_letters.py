"""Operators retry and discard dead letters."""

import pytest
from django.test import Client
from django.urls import reverse

from inference import tasks
from inference.models import (
    DeadLetter,
)
from tenants.isolation.scoping import operator_scope
from tests.control_plane.operator_site.records import somebody_who_may

pytestmark = pytest.mark.django_db


@pytest.mark.usefixtures("one_of_each")
def test_a_dead_letter_is_retried_and_discarded_after_a_question(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with operator_scope("test"):
        letter = DeadLetter.objects.get()
    asked: list[str] = []
    monkeypatch.setattr(tasks.retry_dead_letter, "delay", asked.append)
    page = reverse("admin:inference_deadletter_retry_one", args=[letter.pk])
    assert operator.get(page).status_code == 200
    assert asked == []
    operator.post(page, {"sure": "yes"})
    assert asked == [letter.request_id.hex]
    page = reverse("admin:inference_deadletter_discard_one", args=[letter.pk])
    operator.post(page, {"sure": "yes"})
    with operator_scope("test"):
        assert not DeadLetter.objects.get().is_kept


@pytest.mark.usefixtures("one_of_each")
def test_who_may_only_look_at_a_dead_letter_may_not_retry_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.force_login(somebody_who_may("view_deadletter"))
    with operator_scope("test"):
        letter = DeadLetter.objects.get()
    monkeypatch.setattr(tasks.retry_dead_letter, "delay", pytest.fail)
    page = reverse("admin:inference_deadletter_retry_one", args=[letter.pk])
    assert client.post(page, {"sure": "yes"}).status_code in (302, 403)
