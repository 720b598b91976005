"""Addresses of the pages. A tenant's begin with its id, which every page checks first."""

from django.urls import path

from control_plane.dashboard.components import components
from control_plane.dashboard.pages.members import MembersPage
from control_plane.dashboard.pages.organisations import organisations
from control_plane.dashboard.pages.overview import OverviewPage
from control_plane.dashboard.pages.projects import NewProjectPage, ProjectPage, ProjectsPage

app_name = "dashboard"

_TENANT = "t/<uuid:tenant_id>/"

urlpatterns = [
    path("t/", organisations, name="organisations"),
    path(_TENANT, OverviewPage.as_view(), name="overview"),
    path(f"{_TENANT}projects", ProjectsPage.as_view(), name="projects"),
    path(f"{_TENANT}projects/new", NewProjectPage.as_view(), name="new-project"),
    path(f"{_TENANT}projects/<uuid:project_id>", ProjectPage.as_view(), name="project"),
    path(f"{_TENANT}members", MembersPage.as_view(), name="members"),
    path("operators/components", components, name="components"),
]
