"""Fields of the streams in Redis, and who reads them."""

from typing import Final

USAGE_CONSUMER_GROUP: Final = "control-plane"
USAGE_FIELD: Final = "record"
WASTE_FIELD: Final = "waste"
ENGINE_COUNTER_FIELD: Final = "tally"
OUTBOX_FIELD: Final = "outbox"
POLICY_DELTA_FIELD: Final = "delta"
REFUSALS_FIELD: Final = "batch"
