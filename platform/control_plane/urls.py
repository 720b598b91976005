"""What Django answers. /v1/, /ws/ and the probes never come here: see `asgi.py`."""

from django.contrib import admin
from django.urls import include, path

from control_plane.front_page import front_page
from control_plane.login import operator_login

urlpatterns = [
    path("", front_page, name="front-page"),
    path("admin/login/", operator_login),
    path("admin/", admin.site.urls),
    path("api/v1/", include("inference.management_api.urls")),
]
handler400 = "control_plane.bad_request.bad_request"
