"""Django application configuration."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "tenants.billing"
    label = "billing"
