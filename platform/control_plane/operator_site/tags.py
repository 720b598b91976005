"""What operators' templates ask for by themselves."""

from django import template
from django.http import HttpRequest

from control_plane.operator_site.tenant_overview import Panel, overview_of
from tenants.models import Tenant

register = template.Library()


@register.simple_tag(takes_context=True)
def tenant_overview(context: template.Context, tenant: Tenant) -> list[Panel]:
    request: HttpRequest = context["request"]
    return overview_of(tenant, request)
