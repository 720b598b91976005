"""The policy snapshot in Redis: which version there is, and writing all of it anew."""

from typing import ClassVar

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from redis.exceptions import RedisError
from unfold.decorators import action

from tenants.models import PolicyVersion
from tenants.operator_admin import ReadOnlyAdmin
from tenants.policy.writer import rebuild_policy


@admin.register(PolicyVersion)
class PolicyVersionAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "version", "mark"]
    actions_list: ClassVar = ["rebuild"]

    @action(description="Rebuild in Redis", url_path="rebuild", permissions=["rebuild"])
    def rebuild(self, request: HttpRequest) -> HttpResponse:
        if not self.is_sure(request):
            return self.ask_first(
                request,
                title="Rebuild the policy snapshot",
                text="All keys, tenants and models are written to Redis anew, whatever is there. "
                "Gateways see the old snapshot or the new one, never a part.",
                button="Rebuild",
            )
        try:
            messages.success(request, f"Version {rebuild_policy()} is in Redis.")
        except RedisError as error:
            messages.error(request, f"Redis does not answer: {error}")
        return redirect("admin:tenants_policyversion_changelist")

    def has_rebuild_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("tenants.change_policyversion")
