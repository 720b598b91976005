"""What Django refuses before a view runs, rendered as the API in question renders errors."""

from django.http import HttpRequest, HttpResponse
from django.views import defaults

from inference.management_api import errors


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if request.path.startswith("/api/v1/"):
        return errors.bad_request(request, exception)
    return defaults.bad_request(request, exception)
