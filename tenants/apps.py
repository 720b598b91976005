from django.apps import AppConfig
from django.core import checks


class TenantsConfig(AppConfig):
    """Who may call, and how much."""

    name = "tenants"

    def ready(self) -> None:
        from tenants.access import (
            impersonation,
            second_factor,
            session_proofs,
            sessions,
            sign_in_log,
        )
        from tenants.access.sign_on import offboarding as sign_on
        from tenants.access.sign_on.check import sign_on_problems
        from tenants.audit.log import AuditChains
        from tenants.audit.triggers import check_audit
        from tenants.fsck import register_check, register_log
        from tenants.isolation.row_security import check_managers, check_walls, wall_problems
        from tenants.models import DataKey
        from tenants.models.policy_change import register_publisher
        from tenants.offboarding.closing import register_eraser
        from tenants.policy.check import policy_problems, version_problems
        from tenants.policy.writer import publish_after_commit

        register_publisher(publish_after_commit)
        register_eraser(DataKey.objects.destroy)
        checks.register(checks.Tags.models)(check_managers)
        checks.register(checks.Tags.database)(check_walls)
        checks.register(checks.Tags.database)(check_audit)
        register_log(AuditChains())
        register_check("data keys", DataKey.objects.problems)
        register_check("policy snapshot", policy_problems)
        register_check("policy version", version_problems)
        register_check("tenant walls", wall_problems)
        register_check("single sign-on", sign_on_problems)
        sign_in_log.connect()
        second_factor.connect()
        session_proofs.connect()
        sessions.connect()
        sign_on.register()
        impersonation.connect()
