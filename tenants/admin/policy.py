"""The policy snapshot in Redis: its version, and rebuilding it."""

from typing import ClassVar

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from redis.exceptions import RedisError
from unfold.decorators import action

from tenants.models import PolicyVersion
from tenants.operator_admin import ReadOnlyAdmin
from tenants.policy.writer import rebuild_policy
from tenants.verbs import verb


@admin.register(PolicyVersion)
class PolicyVersionAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "version", "mark"]
    actions_list: ClassVar = ["rebuild"]

    @action(description="Rebuild snapshot", url_path="rebuild", permissions=["rebuild"])
    def rebuild(self, request: HttpRequest) -> HttpResponse:
        if not self.is_sure(request):
            return self.ask_first(
                request,
                title="Rebuild the policy snapshot",
                text=verb("policy rebuild").ends,
                button="Rebuild",
            )
        try:
            messages.success(request, f"Policy snapshot rebuilt as version {rebuild_policy()}.")
        except RedisError as error:
            messages.error(request, f"The snapshot could not be written to Redis: {error}")
        return redirect("admin:tenants_policyversion_changelist")

    def has_rebuild_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("tenants.change_policyversion")
