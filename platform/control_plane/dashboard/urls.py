"""Addresses of the pages. A tenant's begin with its id, which every page checks first."""

from django.urls import path

from control_plane.dashboard.components import components
from control_plane.dashboard.pages.key_ends import RevokeKeyPage, RotateKeyPage
from control_plane.dashboard.pages.keys import KeyPage, KeysPage, NewKeyPage
from control_plane.dashboard.pages.limits import (
    BalanceAlertPage,
    LimitPage,
    LimitsPage,
    NewLimitPage,
    RemoveLimitPage,
)
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
    path(f"{_TENANT}keys", KeysPage.as_view(), name="keys"),
    path(f"{_TENANT}keys/new", NewKeyPage.as_view(), name="new-key"),
    path(f"{_TENANT}keys/<uuid:key_id>", KeyPage.as_view(), name="key"),
    path(f"{_TENANT}keys/<uuid:key_id>/rotate", RotateKeyPage.as_view(), name="rotate-key"),
    path(f"{_TENANT}keys/<uuid:key_id>/revoke", RevokeKeyPage.as_view(), name="revoke-key"),
    path(f"{_TENANT}limits", LimitsPage.as_view(), name="limits"),
    path(f"{_TENANT}limits/new", NewLimitPage.as_view(), name="new-limit"),
    path(f"{_TENANT}limits/new-budget", NewLimitPage.as_view(is_budget=True), name="new-budget"),
    path(f"{_TENANT}limits/balance-alert", BalanceAlertPage.as_view(), name="balance-alert"),
    path(f"{_TENANT}limits/<uuid:quota_id>", LimitPage.as_view(), name="limit"),
    path(f"{_TENANT}limits/<uuid:quota_id>/remove", RemoveLimitPage.as_view(), name="remove-limit"),
    path(f"{_TENANT}members", MembersPage.as_view(), name="members"),
    path("operators/components", components, name="components"),
]
