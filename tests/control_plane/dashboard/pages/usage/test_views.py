"""Views of the explorer that people save: of their own, for everybody, bounded, nobody else's."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenants.isolation.scoping import operator_scope
from tenants.models import SavedView, saved_view
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import CANARY, TwoTenants

pytestmark = pytest.mark.django_db
ASKED = "from=2026-03-10&to=2026-03-14&by=model"


def shown(answer: Any) -> list[str]:
    return [row.view.name for row in answer.context["views"]]


def save(client: Any, address: str, asked: str = ASKED, **form: str) -> Any:
    return client.post(f"{address}usage?{asked}", {"name": "by model"} | form)


def test_a_view_of_ones_own_is_opened_again_and_deleted(
    signed_in: SignIn, acme_address: str
) -> None:
    alice, bob = signed_in("developer"), signed_in("owner")
    saved = save(alice, acme_address, name="Models in March")
    assert saved.status_code == 302
    assert shown(alice.get(saved["Location"])) == ["Models in March", "acme view"]
    assert shown(bob.get(f"{acme_address}usage")) == ["acme view"]
    [mine, _] = alice.get(f"{acme_address}usage").context["views"]
    opened = alice.get(mine.address).context["asked"]
    assert str(opened.query.first) == "2026-03-10" and str(opened.query.last) == "2026-03-14"
    assert [each.value for each in opened.query.group_by] == ["model"]
    delete = f"{acme_address}usage/views/{mine.view.id}/delete"
    assert bob.post(delete).status_code == 404
    assert alice.post(delete).status_code == 302
    assert shown(alice.get(f"{acme_address}usage")) == ["acme view"]


def test_a_range_until_today_goes_on_until_the_day_on_which_it_is_opened(
    signed_in: SignIn, acme_address: str
) -> None:
    today = datetime.now(UTC).date()
    asked = f"from={today - timedelta(days=6)}&to={today}&measure=tokens"
    save(signed_in("viewer"), acme_address, asked)
    with operator_scope("test"):
        assert SavedView.objects.get(name="by model").query == "days=7&measure=tokens"


def test_for_everybody_saves_and_deletes_who_may_change_the_organisation(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    admin, viewer = signed_in("admin"), signed_in("viewer")
    save(admin, acme_address, name="ours", is_for_all="on")
    assert shown(viewer.get(f"{acme_address}usage")) == ["acme view", "ours"]
    # Whoever may not has no such field, and what they send is their own.
    html = viewer.get(f"{acme_address}usage").content.decode()
    assert 'name="is_for_all"' not in html
    save(viewer, acme_address, name="mine", is_for_all="on")
    assert "mine" not in shown(admin.get(f"{acme_address}usage"))
    delete = f"{acme_address}usage/views/{houses.acme.view.id}/delete"
    assert "takes one of" in viewer.post(delete, follow=True).content.decode()
    assert "acme view" in shown(viewer.get(f"{acme_address}usage"))
    admin.post(delete)
    assert shown(admin.get(f"{acme_address}usage")) == ["ours"]


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"name": ""}, "This field is required."),
        ({"name": "x" * 81}, "at most 80 characters"),
        ({"name": "a\x00b"}, "Null characters are not allowed."),
        ({"name": "taken"}, "You have a view of this name already."),
        ({"name": "acme view", "is_for_all": "on"}, "a view of this name for everybody already"),
    ],
)
def test_a_name_that_cannot_be_is_said_beside_its_field(
    form: dict[str, str], said: str, signed_in: SignIn, acme_address: str
) -> None:
    client = signed_in("owner")
    save(client, acme_address, name="taken")
    answer = save(client, acme_address, **form)
    assert answer.status_code == 422 and said in answer.content.decode()
    assert [each.value for each in answer.context["asked"].query.group_by] == ["model"]


def test_views_are_bounded(
    signed_in: SignIn, acme_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_view, "MOST_OWN", 2)
    monkeypatch.setattr(saved_view, "MOST_FOR_ALL", 1)
    client = signed_in("admin")
    for name, status in (("one", 302), ("two", 302), ("three", 422)):
        assert save(client, acme_address, name=name).status_code == status
    answer = save(client, acme_address, name="ours", is_for_all="on")
    assert answer.status_code == 422
    assert "There are 1 views for everybody already" in answer.content.decode()


def test_who_leaves_takes_their_views_along_and_nobody_sees_another_tenants(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    save(signed_in("developer"), acme_address, name="mine")
    with operator_scope("test"):
        houses.acme.members["developer"].delete()
        assert not SavedView.objects.filter(name="mine").exists()
    html = signed_in("owner").get(f"{acme_address}usage").content.decode()
    assert CANARY not in html


def test_a_suspended_organisation_opens_views_and_saves_none(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        houses.acme.tenant.suspend()
    client = signed_in("owner")
    html = client.get(f"{acme_address}usage").content.decode()
    assert "acme view" in html and "Save this view" not in html
    assert save(client, acme_address).status_code == 403


def test_a_name_is_text(signed_in: SignIn, acme_address: str) -> None:
    client = signed_in("owner")
    save(client, acme_address, name="<script>alert(1)</script>")
    html = client.get(f"{acme_address}usage").content.decode()
    assert "<script>alert" not in html and "&lt;script&gt;alert" in html
