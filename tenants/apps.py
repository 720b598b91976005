from django.apps import AppConfig
from django.core import checks


class TenantsConfig(AppConfig):
    """Who may call, and how much."""

    name = "tenants"

    def ready(self) -> None:
        from tenants import sign_in_log
        from tenants.audit_triggers import check_audit
        from tenants.row_security import check_managers, check_walls

        checks.register(checks.Tags.models)(check_managers)
        checks.register(checks.Tags.database)(check_walls)
        checks.register(checks.Tags.database)(check_audit)
        sign_in_log.connect()
