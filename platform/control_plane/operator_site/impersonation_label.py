"""What the header of the operators' admin says while one acts as a member of a tenant."""

from django.http import HttpRequest

from control_plane.web.impersonation import impersonation_on


def impersonation_label(request: HttpRequest) -> list[str] | None:
    """Return the text and colour of the label, None where there is nothing to say."""
    acting = impersonation_on(request)
    if acting is None:
        return None
    return [f"Acting in {acting.tenant_name} until {acting.until:%H:%M} UTC", "warning"]
