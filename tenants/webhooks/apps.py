from django.apps import AppConfig


class WebhooksConfig(AppConfig):
    """What tenants are told, by webhooks and by e-mail."""

    name = "tenants.webhooks"
    label = "webhooks"

    def ready(self) -> None:
        from tenants.fsck import register_check
        from tenants.offboarding.closing import register_eraser
        from tenants.offboarding.export import register_export, rows_of
        from tenants.permissions import Permission
        from tenants.webhooks.deliveries import overdue_problems
        from tenants.webhooks.models import BalanceAlert, Delivery, Endpoint, Event
        from tenants.webhooks.retention import erase_tenant

        register_check("webhooks", overdue_problems)
        register_eraser(erase_tenant)  # addresses of its own, and e-mails to its people
        register_export("webhook_endpoint", rows_of(Endpoint), Permission.VIEW_WEBHOOKS)
        register_export("balance_alert", rows_of(BalanceAlert), Permission.VIEW_BALANCE)
        register_export("webhook_event", rows_of(Event), Permission.VIEW_WEBHOOKS)
        register_export("webhook_delivery", rows_of(Delivery), Permission.VIEW_WEBHOOKS)
