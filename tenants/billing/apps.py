"""Django application configuration."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "tenants.billing"
    label = "billing"

    def ready(self) -> None:
        from tenants.billing.room import ROOM
        from tenants.rooms import collect

        collect(ROOM)
