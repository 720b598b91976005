from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks


class ControlPlaneConfig(AppConfig):
    """Holds the commands and static files of the whole project."""

    name = "control_plane"

    def ready(self) -> None:
        """Make Celery's app the one that tasks are sent by, in every process that has Django."""
        import control_plane.celery  # noqa: F401


class OperatorAdminConfig(SimpleAdminConfig):
    """Django's admin with our site in place of its own. Its pages are imported with the addresses
    and by checks: whatever serves no page starts in two thirds of the time without them."""

    default = False
    default_site = "control_plane.operator_site.site.OperatorSite"

    def ready(self) -> None:
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(_check_pages, checks.Tags.admin)


def _check_pages(
    app_configs: Sequence[AppConfig] | None, **options: Any
) -> list[checks.CheckMessage]:
    """Check the admin's pages as Django does, once they are there."""
    admin.autodiscover()
    return check_admin_app(app_configs, **options)
