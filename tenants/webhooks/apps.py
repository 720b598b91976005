from django.apps import AppConfig


class WebhooksConfig(AppConfig):
    """What tenants are told, by webhooks and by e-mail."""

    name = "tenants.webhooks"
    label = "webhooks"

    def ready(self) -> None:
        from tenants.rooms import collect
        from tenants.webhooks.room import ROOM

        collect(ROOM)
