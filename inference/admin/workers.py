"""The fleet: each worker process, and its drain."""

from collections.abc import Callable
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from redis import Redis
from redis.exceptions import RedisError
from unfold.contrib.filters.admin import ChoicesDropdownFilter
from unfold.decorators import action, display
from unfold.widgets import UnfoldBooleanSwitchWidget

from gpu_workers.protocol.messages import WorkerState
from inference.models import Worker
from inference.operations import drain
from inference.operations.drain import DrainError, FoundWorker
from inference.usage.collector import dispatch_redis
from tenants.operator_admin import ReadOnlyAdmin
from tenants.verbs import verb


class DrainForm(forms.Form):
    stays = forms.BooleanField(
        label="Stay",
        required=False,
        help_text="Do not exit: finish what runs, take nothing, and wait to be resumed.",
        widget=UnfoldBooleanSwitchWidget(),
    )


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
    actions_detail: ClassVar = ["drain_one", "resume_one"]

    @admin.display(boolean=True, description="live")
    def live(self, worker: Worker) -> bool:
        return worker.is_live()

    @display(
        description="state",
        ordering="state",
        label={
            "ready": "success",
            "draining": "warning",
            "drained": "warning",
            "starting": "info",
        },
    )
    def condition(self, worker: Worker) -> str:
        return worker.state

    def has_drain_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("inference.change_worker")

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        worker = Worker.objects.filter(pk=unquote(object_id)).first()
        if worker is None or not worker.is_live():
            return []
        is_leaving = worker.state == WorkerState.DRAINING and not worker.stays
        fitting = () if is_leaving else ("drain_one", *(["resume_one"] if worker.stays else []))
        actions: list[Any] = super().get_actions_detail(request, object_id)
        return [each for each in actions if each.action_name.endswith(tuple(fitting))]

    @action(description="Drain", url_path="drain", permissions=["drain"], icon="logout")
    def drain_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        worker = get_object_or_404(Worker, pk=unquote(object_id))
        form = DrainForm(request.POST if self.is_sure(request) else None)
        if form.is_valid():
            stays = form.cleaned_data["stays"]
            then = "It stays until it is resumed." if stays else "It leaves by itself."
            return self._do(
                request,
                worker,
                lambda redis, found: drain.drain_worker(redis, found, stays=stays),
                f"{worker.name} is draining. {then}",
            )
        return self.ask_first(
            request,
            title=f"Drain {worker.name}",
            text=f"The worker of the pool {worker.pool} runs {worker.running} sequences. "
            f"{verb('workers drain').ends}",
            button="Drain",
            form=form,
            is_final=True,
        )

    @action(description="Resume", url_path="resume", permissions=["drain"], icon="play_arrow")
    def resume_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        worker = get_object_or_404(Worker, pk=unquote(object_id))
        if self.is_sure(request):
            done = f"{worker.name} takes requests again."
            return self._do(request, worker, drain.resume_worker, done)
        return self.ask_first(
            request,
            title=f"Resume {worker.name}",
            text=f"The worker of the pool {worker.pool} takes requests again, at once.",
            button="Resume",
        )

    def _do(
        self,
        request: HttpRequest,
        worker: Worker,
        order: Callable[[Redis, FoundWorker], None],
        done: str,
    ) -> HttpResponse:
        try:
            with dispatch_redis() as redis:
                order(redis, FoundWorker(pool=worker.pool, worker_id=worker.worker_id))
        except DrainError as error:
            messages.error(request, str(error))
        except RedisError:
            messages.error(request, "The dispatch Redis is not reachable; try again later.")
        else:
            messages.success(request, done)
        return self.back_to(worker)
