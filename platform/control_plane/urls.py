"""What Django answers. Of /v1/ that is uploads alone; /ws/ and the probes never come here: see
`asgi.py`."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from control_plane.accounts import sign_on
from control_plane.accounts.limits import against_repeated_sign_on
from control_plane.blobs.addresses import blob
from control_plane.documentation.pages import api_group, api_reference, websocket_reference
from control_plane.operator_site.login import operator_login
from control_plane.status.front_page import front_page

admin.autodiscover()

urlpatterns = [
    path("", front_page, name="front-page"),
    path("account/", include("control_plane.accounts.urls")),
    path("sso/<uuid:tenant_id>/", against_repeated_sign_on(sign_on.start), name="sign-on"),
    path(
        "sso/<uuid:tenant_id>/callback",
        against_repeated_sign_on(sign_on.callback),
        name="sign-on-callback",
    ),
    path("admin/login/", operator_login),
    path("admin/", admin.site.urls),
    path("", include("control_plane.dashboard.urls")),
    path("blobs/<path:path>", blob, name="blob"),
    path("docs", RedirectView.as_view(pattern_name="docs-api")),
    path("docs/", RedirectView.as_view(pattern_name="docs-api")),
    path("docs/api", api_reference, name="docs-api"),
    path("docs/api/<slug:slug>", api_group, name="docs-api-group"),
    path("docs/websocket", websocket_reference, name="docs-websocket"),
    path("v1/", include("control_plane.management_api.uploads.urls")),
    path("api/v1/", include("control_plane.management_api.urls")),
]
handler400 = "control_plane.management_api.errors.bad_request"
