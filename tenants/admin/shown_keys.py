"""The page that shows operators a new API key."""

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from tenants.models import ApiKey
from tenants.operator_admin import OperatorAdmin


class ShowsKeys(OperatorAdmin):
    """Makes keys, each of which is shown once."""

    def show_once(self, request: HttpRequest, record: ApiKey, key: str | None) -> HttpResponse:
        """Return the one page that ever holds the key: a message would be stored."""
        context = {
            **self.admin_site.each_context(request),
            "title": "API key",
            "opts": self.opts,
            "record": record,
            "key": key,
        }
        # The admin marks all its answers as not to be stored.
        return TemplateResponse(request, "admin/tenants/apikey/issued.html", context)
