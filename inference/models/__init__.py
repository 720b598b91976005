from inference.models.catalog import ServedModel, ServedModelTenant
from inference.models.fleet import Worker
from inference.models.usage import UsageQuarantine, UsageRecord

__all__ = ["ServedModel", "ServedModelTenant", "UsageQuarantine", "UsageRecord", "Worker"]
