"""What records sum up to, computed by PostgreSQL: the same as `rollups` adds up."""

from typing import Final

from gpu_workers.protocol.messages import Outcome
from gpu_workers.protocol.promises import (
    FEWEST_OUTPUT_TOKENS,
    LONGEST_PROMPT_TOKENS,
    OWN_FAULTS,
)
from inference.histograms import number_sql
from inference.usage.rollups import ERRORS, MEASURES, UNKNOWN_CODE

# Of a record: whether it ended with an error, and the code it counts as then.
IS_ERROR_SQL: Final = "outcome IN ({})".format(", ".join(f"'{outcome}'" for outcome in ERRORS))
ERROR_CODE_SQL: Final = f"coalesce(nullif(error_code, ''), '{UNKNOWN_CODE}')"
# What `measures_sql` needs beside columns of `UsageRecord`: the tier's promises of now.
PROMISED_SQL: Final = """
    LEFT JOIN (
        SELECT name AS promised_tier, ttft_target_ms, inter_token_target_ms,
            service_class AS class_of_tier
        FROM tenants_tier
    ) AS promised ON promised_tier = tier
"""
_COMPLETED: Final = f"outcome = '{Outcome.COMPLETED}'"
_DURATION_MS: Final = "greatest(extract(epoch FROM finished_at - arrived_at), 0)::float8 * 1000"
# As `gpu_workers.protocol.promises`.
_OWN_FAULT: Final = "coalesce(error_code, '') IN ({})".format(
    ", ".join(f"'{code}'" for code in OWN_FAULTS)
)
_TTFT_MEASURED: Final = f"""
    promised_tier IS NOT NULL AND prompt_tokens - cached_tokens <= {LONGEST_PROMPT_TOKENS} AND (
        ttft_ms IS NOT NULL OR (
            outcome IN ('cancelled', 'expired', 'failed') AND {_DURATION_MS} > ttft_target_ms
            AND NOT {_OWN_FAULT}
        )
    )
"""
_ITL_MEASURED: Final = "promised_tier IS NOT NULL AND itl_p95_ms IS NOT NULL"
_ITL_KEPT: Final = f"""
    (itl_p95_ms <= inter_token_target_ms OR completion_tokens < {FEWEST_OUTPUT_TOKENS})
"""


def measures_sql() -> str:
    """Return the aggregates of `MEASURES`, each with its name; rows whose `outcome` is "" are
    wasted attempts."""
    sums = {
        "requests": "count(*) FILTER (WHERE outcome <> '')",
        **{outcome.value: f"count(*) FILTER (WHERE outcome = '{outcome}')" for outcome in Outcome},
        "ttft_histogram": _histogram("ttft_ms::float8", "ttft_ms IS NOT NULL"),
        "itl_histogram": _histogram("itl_p50_ms", "itl_p50_ms IS NOT NULL"),
        "duration_histogram": _histogram(_DURATION_MS, _COMPLETED),
        "queue_histogram": _histogram("queue_ms::float8", "queue_ms IS NOT NULL"),
        "ttft_in_time": _in_time("ttft_ms <= ttft_target_ms"),
        "itl_in_time": _in_time("itl_p95_ms <= inter_token_target_ms"),
        "requests_owed": _owed("true"),
        "failed_owed": _owed(f"outcome IN ('expired', 'failed') AND NOT {_OWN_FAULT}"),
        "ttft_owed": _owed(_TTFT_MEASURED),
        "ttft_owed_in_time": _owed(f"{_TTFT_MEASURED} AND ttft_ms <= ttft_target_ms"),
        "itl_owed": _owed(_ITL_MEASURED),
        "itl_owed_in_time": _owed(f"{_ITL_MEASURED} AND {_ITL_KEPT}"),
    }
    return ", ".join(f"{sums.get(name, f'sum({name})')} AS {name}" for name in MEASURES)


def _histogram(milliseconds: str, which: str) -> str:
    return f"coalesce(sum({number_sql(milliseconds)}) FILTER (WHERE {which}), 0)"


def _in_time(kept: str) -> str:
    return f"sum(CASE WHEN promised_tier IS NOT NULL THEN coalesce(({kept})::int, 0) END)"


def _owed(which: str) -> str:
    return f"count(*) FILTER (WHERE owed AND ({which}))"
