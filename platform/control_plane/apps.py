from django.apps import AppConfig


class ControlPlaneConfig(AppConfig):
    """Bears the commands and static files of the whole."""

    name = "control_plane"
