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
        from tenants.audit.log import AuditChains
        from tenants.audit.triggers import check_audit
        from tenants.fsck import of_log, whole
        from tenants.isolation.row_security import check_managers, check_walls, wall_problems
        from tenants.models import DataKey
        from tenants.models.policy_change import register_publisher
        from tenants.policy.check import policy_problems, version_problems
        from tenants.policy.writer import publish_after_commit
        from tenants.rooms import Room, collect

        log = AuditChains()
        own = Room(
            erasers=(DataKey.objects.destroy,),
            checks={
                log.name: of_log(log),
                "data keys": whole(DataKey.objects.problems),
                "policy snapshot": whole(policy_problems),
                "policy version": whole(version_problems),
                "tenant walls": whole(wall_problems),
            },
        )
        collect(own, sign_on.ROOM)
        register_publisher(publish_after_commit)
        checks.register(checks.Tags.models)(check_managers)
        checks.register(checks.Tags.database)(check_walls)
        checks.register(checks.Tags.database)(check_audit)
        sign_in_log.connect()
        second_factor.connect()
        session_proofs.connect()
        sessions.connect()
        impersonation.connect()
