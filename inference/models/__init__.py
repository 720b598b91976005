from inference.models.adapter import Adapter, AdapterState, AdapterVersion
from inference.models.adapter_loads import AdapterLoads
from inference.models.adapter_storage import AdapterStorage
from inference.models.catalog import Pool, PoolTenant, ServedModel, ServedModelTenant
from inference.models.dead_letter import DeadLetter
from inference.models.fleet import Gateway, Worker
from inference.models.idempotency import IdempotentCall
from inference.models.label_usage import LabelUsage
from inference.models.refusal import (
    DailyRefusals,
    NewestRefusal,
    RefusalReporter,
    RefusalRollup,
)
from inference.models.rollup import (
    DailyPoolUsage,
    DailyTenantUsage,
    DailyUsage,
    DealtCost,
    DealtDay,
    ErrorRollup,
    PoolTenantUsage,
    PoolUsage,
    UsageRollup,
)
from inference.models.upload import Upload, UploadPart
from inference.models.usage import (
    EngineTokenCounter,
    UsageProofStart,
    UsageQuarantine,
    UsageRecord,
    WastedAttempt,
)

__all__ = [
    "Adapter",
    "AdapterLoads",
    "AdapterState",
    "AdapterStorage",
    "AdapterVersion",
    "DailyPoolUsage",
    "DailyRefusals",
    "DailyTenantUsage",
    "DailyUsage",
    "DeadLetter",
    "DealtCost",
    "DealtDay",
    "EngineTokenCounter",
    "ErrorRollup",
    "Gateway",
    "IdempotentCall",
    "LabelUsage",
    "NewestRefusal",
    "Pool",
    "PoolTenant",
    "PoolTenantUsage",
    "PoolUsage",
    "RefusalReporter",
    "RefusalRollup",
    "ServedModel",
    "ServedModelTenant",
    "Upload",
    "UploadPart",
    "UsageProofStart",
    "UsageQuarantine",
    "UsageRecord",
    "UsageRollup",
    "WastedAttempt",
    "Worker",
]
