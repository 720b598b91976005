"""What the pages of adapters and of versions share: nobody edits a record, verbs are called."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat

from inference.adapters.storage import Kept, storage_of
from inference.adapters.worker_counts import WorkerCounts
from tenants.admin.storage import register_storage_text
from tenants.errors import TenantsError
from tenants.management.arguments import one_sentence
from tenants.models import Tenant
from tenants.operator_admin import ReadOnlyAdmin


class AdapterVerbs(ReadOnlyAdmin):
    """A record that operators act on by the verbs that the API has."""

    def has_act_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return request.user.has_perm("inference.change_adapter")

    def found(self, request: HttpRequest, object_id: str) -> Any:
        """Return the record. Raises `Http404`, for what is no id, too."""
        record = self.get_object(request, object_id)
        if record is None:
            raise Http404
        return record

    def do(
        self, request: HttpRequest, record: Model, work: Callable[[], object], done: str
    ) -> HttpResponse:
        """Call a verb. One that refuses has changed nothing, and the page says why."""
        try:
            with transaction.atomic():
                work()
        except TenantsError as error:
            messages.error(request, error.message)
        except ValidationError as error:
            messages.error(request, one_sentence(error))
        else:
            self.log_change(request, record, done)
            messages.success(request, done)
        return self.back_to(record)


def percent(permille: int) -> str:
    return f"{permille / 10:g} %"


def workers_text(holders: WorkerCounts | None) -> str:
    """Say where workers have a version."""
    if holders is None:
        return "unknown"
    levels = (
        (holders.slot, "in a slot"),
        (holders.memory, "in memory"),
        (holders.disk, "on disk"),
    )
    return ", ".join(f"{count} {where}" for count, where in levels if count) or "none"


def _storage_text(tenant: Tenant) -> str:
    found = storage_of(tenant)
    return f"Adapters: {_kept(found.adapters)}. Uploads: {_kept(found.uploads)}."


def _kept(kept: Kept) -> str:
    """Say what counts against the tier's bound, and what lies in the store where that is other."""
    text = f"{kept.count}, {filesizeformat(kept.counted_bytes)}"
    text += f" of {filesizeformat(kept.max_bytes or 0)}"
    if kept.stored_bytes != kept.counted_bytes:
        text += f" ({filesizeformat(kept.stored_bytes)} stored)"
    return text


register_storage_text(_storage_text)
