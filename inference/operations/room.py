"""Usage as it leaves with a tenant, and what fsck asks of it and of what is under way."""

from typing import Final

from inference.blobs.sweep import blob_problems
from inference.models import IdempotentCall, UsageRecord
from inference.models.usage import wasted_attempts_of
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
from inference.operations.slices import month_slices
from inference.operations.sum_checks import pool_sum_problems, sum_problems
from inference.room import Room
from inference.usage.labels import erase_labels, exported_label_usage
from inference.usage.pools.dealt_days import dealt_cost_problems
from tenants.fsck import by_tenant, in_slices, whole
from tenants.permissions import Permission

ROOM: Final = Room(
    exports={
        "usage_record": (UsageRecord.objects.of_tenant, Permission.VIEW_USAGE),
        "wasted_attempt": (wasted_attempts_of, Permission.VIEW_USAGE),
        "label_usage": (exported_label_usage, Permission.VIEW_USAGE),
    },
    erasers=(IdempotentCall.objects.erase, erase_labels),
    checks={
        "blobs": whole(blob_problems),
        "usage attempts": in_slices(attempt_problems, month_slices),
        "usage dealt costs": whole(dealt_cost_problems),
        "usage generated": in_slices(generated_problems, month_slices),
        "usage labels": by_tenant(label_problems),
        "usage open requests": whole(open_request_problems),
        "usage partitions": whole(partition_problems),
        "usage quarantine": whole(quarantine_problems),
        "usage reservations": whole(reservation_problems),
        "usage sums": by_tenant(sum_problems),
        "usage sums of pools": in_slices(pool_sum_problems, month_slices),
        "usage token counters": whole(token_counter_problems),
    },
)
