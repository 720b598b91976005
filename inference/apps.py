from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class InferenceConfig(AppConfig):
    """What is called and how it is served."""

    name = "inference"

    def ready(self) -> None:
        from inference.adapters.offboarding import (
            ADAPTERS,
            adapter_blobs,
            delete_adapters,
            exported_adapters,
            exported_storage,
            exported_versions,
        )
        from inference.adapters.policy_rows import adapter_policies
        from inference.adapters.sources import address_problems, restore_sources
        from inference.blobs.sweep import blob_problems, register_owner
        from inference.models import (
            IdempotentCall,
            NewestRefusal,
            Upload,
            UploadPart,
            UsageRecord,
        )
        from inference.models.catalog import model_names, pool_names, visible_models
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
            token_counter_problems,
        )
        from inference.operations.label_checks import label_problems
        from inference.operations.resync import resync_lost_redis
        from inference.operations.slices import month_slices
        from inference.operations.sum_checks import pool_sum_problems, sum_problems
        from inference.refusals.records import erase_refusals, exported_refusals, refusal_problems
        from inference.uploads.expiry import erase_uploads
        from inference.usage.collector import is_all_usage_posted
        from inference.usage.invoice_source import RolledUpUsage
        from inference.usage.labels import erase_labels, exported_label_usage
        from inference.usage.pools.dealt_days import dealt_cost_problems
        from tenants.billing.invoicing.usage_source import register_usage_source
        from tenants.billing.ledger.spend import register_posting_check
        from tenants.billing.pricing.price_book import register_model_names
        from tenants.fsck import register_check, register_check_of_tenants, register_sliced
        from tenants.offboarding.closing import register_eraser
        from tenants.offboarding.export import register_export, rows_of
        from tenants.permissions import Permission
        from tenants.policy.rows import (
            register_adapter_source,
            register_model_source,
            register_pool_source,
        )
        from tenants.policy.writer import register_pre_restore_hook, register_restorer

        register_model_source(visible_models)
        register_pool_source(pool_names)
        register_model_names(model_names)
        register_adapter_source(adapter_policies)
        register_pre_restore_hook(resync_lost_redis)
        register_restorer(rebuild_budgets)
        register_restorer(restore_sources)
        register_usage_source(RolledUpUsage())
        register_posting_check(is_all_usage_posted)
        register_export("usage_record", UsageRecord.objects.of_tenant, Permission.VIEW_USAGE)
        register_export("wasted_attempt", wasted_attempts_of, Permission.VIEW_USAGE)
        register_export("label_usage", exported_label_usage, Permission.VIEW_USAGE)
        register_export("adapter", exported_adapters, Permission.VIEW_ADAPTERS)
        register_export("adapter_version", exported_versions, Permission.VIEW_ADAPTERS)
        register_export("storage", exported_storage, Permission.VIEW_ADAPTERS)
        register_eraser(delete_adapters)
        register_export("upload", rows_of(Upload), Permission.VIEW_ADAPTERS)
        register_eraser(IdempotentCall.objects.erase)
        register_eraser(erase_uploads)
        register_eraser(erase_refusals)
        register_export("refusals", exported_refusals, Permission.VIEW_USAGE)
        register_export("refusal", rows_of(NewestRefusal), Permission.VIEW_USAGE)
        register_eraser(erase_labels)
        register_owner(UPLOADS, UploadPart.objects.blobs)
        register_owner(ADAPTERS, adapter_blobs)
        register_check("blobs", blob_problems)
        register_check("adapter addresses", address_problems)
        register_check("refusals", refusal_problems)
        register_sliced("usage attempts", attempt_problems, month_slices)
        register_check("usage dealt costs", dealt_cost_problems)
        register_sliced("usage generated", generated_problems, month_slices)
        register_check_of_tenants("usage labels", label_problems)
        register_check("usage open requests", open_request_problems)
        register_check("usage partitions", partition_problems)
        register_check("usage quarantine", quarantine_problems)
        register_check("usage reservations", reservation_problems)
        register_check_of_tenants("usage sums", sum_problems)
        register_sliced("usage sums of pools", pool_sum_problems, month_slices)
        register_check("usage token counters", token_counter_problems)
        post_migrate.connect(_make_partitions_ahead, sender=self)


def _make_partitions_ahead(*, using: str, **_: Any) -> None:
    """Make partitions at the end of each `migrate`, so that a new deployment has somewhere to
    write."""
    from inference.usage.partitions import is_partitioned, make_partitions_ahead

    if is_partitioned(using=using):
        make_partitions_ahead(using=using)
