from inference.models.adapter import Adapter, AdapterState, AdapterVersion
from inference.models.catalog import Pool, PoolTenant, ServedModel, ServedModelTenant
from inference.models.dead_letter import DeadLetter
from inference.models.fleet import Gateway, Worker
from inference.models.idempotency import IdempotentCall
from inference.models.rollup import DailyUsage, UsageRollup
from inference.models.upload import Upload, UploadPart
from inference.models.usage import EngineTokenCounter, UsageQuarantine, UsageRecord, WastedAttempt

__all__ = [
    "Adapter",
    "AdapterState",
    "AdapterVersion",
    "DailyUsage",
    "DeadLetter",
    "EngineTokenCounter",
    "Gateway",
    "IdempotentCall",
    "Pool",
    "PoolTenant",
    "ServedModel",
    "ServedModelTenant",
    "Upload",
    "UploadPart",
    "UsageQuarantine",
    "UsageRecord",
    "UsageRollup",
    "WastedAttempt",
    "Worker",
]
