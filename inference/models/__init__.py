from inference.models.catalog import Pool, PoolTenant, ServedModel, ServedModelTenant
from inference.models.fleet import Worker
from inference.models.usage import UsageQuarantine, UsageRecord

__all__ = [
    "Pool",
    "PoolTenant",
    "ServedModel",
    "ServedModelTenant",
    "UsageQuarantine",
    "UsageRecord",
    "Worker",
]
