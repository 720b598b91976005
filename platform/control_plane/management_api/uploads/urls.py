"""The addresses below /v1/ that are Django's: see control_plane/dispatcher.py."""

from django.urls import re_path
from rest_framework.routers import SimpleRouter

from control_plane.management_api.errors import nothing_here
from control_plane.management_api.uploads.viewset import UploadViewSet

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("uploads", UploadViewSet, basename="upload")
urlpatterns = [*router.urls, re_path(r"^uploads/", nothing_here)]
