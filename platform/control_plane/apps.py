from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig


class ControlPlaneConfig(AppConfig):
    """Holds the commands and static files of the whole project."""

    name = "control_plane"

    def ready(self) -> None:
        """Make Celery's app the one that tasks are sent by, in every process that has Django."""
        import control_plane.celery  # noqa: F401


class OperatorAdminConfig(AdminConfig):
    """Django's admin with our site in place of its own."""

    default = False
    default_site = "control_plane.operator_site.site.OperatorSite"
