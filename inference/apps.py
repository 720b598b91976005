from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class InferenceConfig(AppConfig):
    """What is called and how it is served."""

    name = "inference"

    def ready(self) -> None:
        from inference.adapters import offboarding as adapters
        from inference.adapters.policy_rows import adapter_policies
        from inference.adapters.sources import restore_sources
        from inference.models.catalog import model_names, pool_names, visible_models
        from inference.operations import room as usage
        from inference.operations.budgets import rebuild_budgets
        from inference.operations.resync import resync_lost_redis
        from inference.refusals import records as refusals
        from inference.room import collect
        from inference.uploads import expiry as uploads
        from inference.usage.collector import is_all_usage_posted
        from inference.usage.invoice_source import RolledUpUsage
        from tenants.billing.invoicing.usage_source import register_usage_source
        from tenants.billing.ledger.spend import register_posting_check
        from tenants.billing.pricing.price_book import register_model_names
        from tenants.policy.rows import Catalogue, register_catalogue
        from tenants.policy.writer import register_pre_restore_hook, register_restorer

        collect(adapters.ROOM, refusals.ROOM, uploads.ROOM, usage.ROOM)
        register_catalogue(
            Catalogue(models=visible_models, pools=pool_names, adapters=adapter_policies)
        )
        register_model_names(model_names)
        register_pre_restore_hook(resync_lost_redis)
        register_restorer(rebuild_budgets)
        register_restorer(restore_sources)
        register_usage_source(RolledUpUsage())
        register_posting_check(is_all_usage_posted)
        post_migrate.connect(_make_partitions_ahead, sender=self)


def _make_partitions_ahead(*, using: str, **_: Any) -> None:
    """Make partitions at the end of each `migrate`, so that a new deployment has somewhere to
    write."""
    from inference.usage.partitions import is_partitioned, make_partitions_ahead

    if is_partitioned(using=using):
        make_partitions_ahead(using=using)
