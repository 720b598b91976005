"""The page, and the tickets with which it opens its websocket: one for each connection, bound to
the session, and spent at once."""

import uuid
from http import HTTPStatus
from typing import Any, ClassVar, Final

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from redis.exceptions import RedisError

from control_plane.curl import chat_command
from control_plane.dashboard.page import TenantPage
from control_plane.dashboard.pages.keys import id_in, projects_to_choose
from control_plane.dashboard.pages.playground.forms import FORM_ID, SettingsForm
from control_plane.dashboard.pages.playground.offers import offers_of
from control_plane.web.pages import private
from gpu_workers.protocol.policy import Caller
from inference.admission.tickets import TICKET_SECONDS, Ticket, new_ticket
from inference.websocket_api.frames import MAX_FRAME_BYTES
from tenants.access.playground_keys import playground_key
from tenants.errors import NotPermitted
from tenants.models import ApiKey, CapReached, Project
from tenants.permissions import Permission
from tenants.policy.wire import api_key_policy, tenant_policy
from tenants.policy_redis import policy_redis

_NO_REDIS: Final = "Requests cannot be taken just now; try again in a moment."


class PlaygroundPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.WRITE_KEYS}
    template_name = "dashboard/playground/page.html"
    section = "playground"

    def get(self, request: HttpRequest) -> HttpResponse:
        projects = projects_to_choose(request.GET.get("project"))
        asked, ids = request.GET.get("project"), [project for project, _ in projects]
        offers = offers_of(self.tenant)
        context = {
            "projects": projects,
            "project": asked if asked in ids else ids[0] if ids else None,
            "offers": offers,
            "settings": SettingsForm(),
            "form_id": FORM_ID,
            "most_bytes": MAX_FRAME_BYTES,
            "curl": chat_command(offers[0].name if offers else "<model>"),
            "may_run": self.access.may_change(Permission.WRITE_KEYS),
        }
        return self.show(context)


class TicketPage(TenantPage):
    """Answers with JSON, refusals too. The ticket is written once the key behind it is committed,
    and so known to the gateways."""

    permissions: ClassVar = {"POST": Permission.WRITE_KEYS}
    http_method_names = ["post"]
    section = "playground"

    _ticket: Ticket | None = None

    def dispatch(self, request: HttpRequest, *args: Any, **ids: Any) -> HttpResponseBase:
        answer = super().dispatch(request, *args, **ids)
        if self._ticket is None:
            return answer
        try:
            policy_redis().set(self._ticket.key, self._ticket.entry, ex=TICKET_SECONDS)
        except (RedisError, OSError):
            return _answer({"message": _NO_REDIS}, status=HTTPStatus.SERVICE_UNAVAILABLE)
        return _answer({"ticket": self._ticket.text, "expires_in": TICKET_SECONDS})

    def post(self, request: HttpRequest) -> HttpResponse:
        member = self.access.as_member()
        project = Project.objects.get(id=id_in(request.POST.get("project")) or uuid.UUID(int=0))
        try:
            key = playground_key(project, member)
        except CapReached as refusal:
            return self._refused(Permission.WRITE_KEYS, refusal)
        # As the policy snapshot will have it: with the quotas of key and project.
        record = ApiKey.objects.with_tenant(key.public_id)
        assert record is not None  # noqa: S101 - made above
        caller = Caller(
            public_key_id=record.public_id,
            key=api_key_policy(record),
            tenant=tenant_policy(record.tenant),
        )
        self._ticket = new_ticket(caller, session=str(request.session.session_key))
        return HttpResponse(status=HTTPStatus.NO_CONTENT)

    def _refused(self, permission: Permission, refusal: NotPermitted) -> HttpResponse:
        content = {"message": refusal.message, "code": refusal.code}
        return _answer(content, status=HTTPStatus.FORBIDDEN)


def _answer(content: dict[str, Any], *, status: int = HTTPStatus.OK) -> HttpResponse:
    return private(JsonResponse(content, status=status))
