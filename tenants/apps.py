from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Who may call, and how much."""

    name = "tenants"
