"""The front page: status of the service, its models and workers, and how to call it."""

from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from control_plane.curl import chat_command
from control_plane.status.health import Health, HealthReport
from control_plane.status.viewers import Viewers
from tenants.isolation.audit_actor import address_of

health: Final = Health(
    dispatch_redis_url=settings.PENSTOCK_DISPATCH_REDIS_URL,
    redis_url=settings.PENSTOCK_REDIS_URL,
    database_url=settings.PENSTOCK_DATABASE_URL,
)
viewers: Final = Viewers(networks=settings.PENSTOCK_METRICS_NETWORKS)
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


@require_safe
async def front_page(request: HttpRequest) -> HttpResponse:
    """Show whether the service is up and how to call it; it needs no sign-in and names only public
    models. How it does, in figures, is for those who may see its metrics."""
    report = await health.report()
    public = [model for model in report.models if model.is_public]
    context = {
        "has_figures": viewers.is_near(address_of(request)),
        "report": report,
        "models": public,
        "unserved": [model for model in public if not model.is_served],
        "workers": _public_workers(report),
        "unwell": [part for part in report.parts if not part.is_well],
        "curl": _curl(report),
    }
    response = render(request, "front_page.html", context)
    response["Content-Security-Policy"] = _POLICY
    response["Cache-Control"] = "no-store"
    return response


def _public_workers(report: HealthReport) -> list[object]:
    """Return live workers of pools with a public model; a tenant's own pool is not shown."""
    public = {model.pool.name: model.pool for model in report.models if model.is_public}
    return [worker for pool in public.values() for worker in pool.live]


def _curl(report: HealthReport) -> str:
    """Return a curl command that works once PENSTOCK_API_KEY holds a key. Never a real key."""
    public = [model for model in report.models if model.is_public]
    served = [model for model in public if model.is_served] or public
    return chat_command(served[0].policy.name if served else "<model>")
