"""The fleet: each worker process, and its drain."""

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from redis.exceptions import RedisError
from unfold.contrib.filters.admin import ChoicesDropdownFilter
from unfold.decorators import action, display

from gpu_workers.protocol.messages import WorkerState
from inference.models import Worker
from inference.operations import drain
from inference.operations.drain import DrainError, FoundWorker
from inference.usage.collector import dispatch_redis
from tenants.operator_admin import ReadOnlyAdmin


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = [
        "name",
        "pool",
        "model",
        "engine",
        "condition",
        "live",
        "running",
        "slots",
        "host",
        "last_seen_at",
    ]
    list_filter = ["pool", "engine", ("state", ChoicesDropdownFilter)]
    search_fields = ["worker_id", "name", "host", "model"]
    actions_detail: ClassVar = ["drain_one"]

    @admin.display(boolean=True, description="live")
    def live(self, worker: Worker) -> bool:
        return worker.is_live()

    @display(
        description="state",
        ordering="state",
        label={"ready": "success", "draining": "warning", "starting": "info"},
    )
    def condition(self, worker: Worker) -> str:
        return worker.state

    def has_drain_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("inference.change_worker")

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        worker = Worker.objects.filter(pk=unquote(object_id)).first()
        if worker is None or not worker.is_live() or worker.state == WorkerState.DRAINING:
            return []
        actions: list[Any] = super().get_actions_detail(request, object_id)
        return actions

    @action(description="Drain", url_path="drain", permissions=["drain"], icon="logout")
    def drain_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        worker = get_object_or_404(Worker, pk=unquote(object_id))
        if self.is_sure(request):
            found = FoundWorker(pool=worker.pool, worker_id=worker.worker_id)
            try:
                with dispatch_redis() as redis:
                    drain.drain_worker(redis, found)
            except DrainError as error:
                messages.error(request, str(error))
            except RedisError:
                messages.error(request, "The dispatch Redis is not reachable; try again later.")
            else:
                messages.success(request, f"{worker.name} is draining. It leaves by itself.")
            return self.back_to(worker)
        return self.ask_first(
            request,
            title=f"Drain {worker.name}",
            text=f"The worker of the pool {worker.pool} takes no new requests. It finishes the "
            f"{worker.running} sequences it runs, or hands them to other workers, and exits. It "
            "comes back when it is started on its machine.",
            button="Drain",
            is_final=True,
        )
