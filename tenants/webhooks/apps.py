from django.apps import AppConfig


class WebhooksConfig(AppConfig):
    """What tenants are told, by webhooks and by e-mail."""

    name = "tenants.webhooks"
    label = "webhooks"

    def ready(self) -> None:
        from tenants.fsck import register_check
        from tenants.offboarding.closing import register_eraser
        from tenants.offboarding.export import register_export
        from tenants.webhooks.deliveries import overdue_problems
        from tenants.webhooks.models import BalanceAlert, Delivery, Endpoint, Event
        from tenants.webhooks.retention import erase_tenant

        register_check("webhooks", overdue_problems)
        register_eraser(erase_tenant)  # addresses of its own, and e-mails to its people
        register_export("webhook_endpoint", lambda tenant: Endpoint.objects.filter(tenant=tenant))
        register_export("balance_alert", lambda tenant: BalanceAlert.objects.filter(tenant=tenant))
        register_export("webhook_event", lambda tenant: Event.objects.filter(tenant=tenant))
        register_export("webhook_delivery", lambda tenant: Delivery.objects.filter(tenant=tenant))
