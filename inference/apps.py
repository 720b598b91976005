from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class InferenceConfig(AppConfig):
    """What is called and how it is served."""

    name = "inference"

    def ready(self) -> None:
        from inference.adapters.offboarding import (
            ADAPTERS,
            adapter_paths,
            delete_adapters,
            exported_adapters,
            exported_versions,
        )
        from inference.adapters.policy_rows import adapter_policies
        from inference.adapters.sources import address_problems, restore_sources
        from inference.blobs.sweep import blob_problems, register_owner
        from inference.models import IdempotentCall, Upload, UploadPart, UsageRecord
        from inference.models.catalog import visible_models
        from inference.models.upload import BLOBS as UPLOADS
        from inference.models.usage import wasted_attempts_of
        from inference.operations.budgets import rebuild_budgets
        from inference.operations.checks import (
            attempt_problems,
            generated_problems,
            open_request_problems,
            partition_problems,
            quarantine_problems,
            reservation_problems,
            sum_problems,
            token_counter_problems,
        )
        from inference.operations.resync import resync_lost_redis
        from inference.uploads.expiry import erase_uploads
        from inference.usage.collector import is_all_usage_posted
        from inference.usage.invoice_source import RolledUpUsage
        from tenants.billing.invoicing.usage_source import register_usage_source
        from tenants.billing.ledger.spend import register_posting_check
        from tenants.fsck import register_check
        from tenants.offboarding.closing import register_eraser
        from tenants.offboarding.export import register_export
        from tenants.policy.rows import register_adapter_source, register_model_source
        from tenants.policy.writer import register_pre_restore_hook, register_restorer

        register_model_source(visible_models)
        register_adapter_source(adapter_policies)
        register_pre_restore_hook(resync_lost_redis)
        register_restorer(rebuild_budgets)
        register_restorer(restore_sources)
        register_usage_source(RolledUpUsage())
        register_posting_check(is_all_usage_posted)
        register_export("usage_record", UsageRecord.objects.of_tenant)
        register_export("wasted_attempt", wasted_attempts_of)
        register_export("adapter", exported_adapters)
        register_export("adapter_version", exported_versions)
        register_eraser(delete_adapters)
        register_export("upload", lambda tenant: Upload.objects.filter(tenant=tenant))
        register_eraser(IdempotentCall.objects.erase)
        register_eraser(erase_uploads)
        register_owner(UPLOADS, UploadPart.objects.paths)
        register_owner(ADAPTERS, adapter_paths)
        register_check("blobs", blob_problems)
        register_check("adapter addresses", address_problems)
        register_check("usage attempts", attempt_problems)
        register_check("usage generated", generated_problems)
        register_check("usage open requests", open_request_problems)
        register_check("usage partitions", partition_problems)
        register_check("usage quarantine", quarantine_problems)
        register_check("usage reservations", reservation_problems)
        register_check("usage sums", sum_problems)
        register_check("usage token counters", token_counter_problems)
        post_migrate.connect(_make_partitions_ahead, sender=self)


def _make_partitions_ahead(*, using: str, **_: Any) -> None:
    """Make partitions at the end of each `migrate`, so that a new deployment has somewhere to
    write."""
    from inference.usage.partitions import is_partitioned, make_partitions_ahead

    if is_partitioned(using=using):
        make_partitions_ahead(using=using)
