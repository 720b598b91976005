"""Every function that runs in Redis, by its name there."""

# Redis Function libraries, named with the wire's version so that old and new processes can live
# side by side during an upgrade.
ADMISSION_LIBRARY = "penstock_admission_1"
DISPATCH_LIBRARY = "penstock_dispatch_1"

RESERVE = "penstock_reserve_1"
TRUE_DOWN = "penstock_true_down_1"
SETTLE = "penstock_settle_1"
LIMIT_STATUS = "penstock_limit_status_1"
PLACE_HOLD = "penstock_place_hold_1"
RELEASE_HOLD = "penstock_release_hold_1"
RAISE_SPEND = "penstock_raise_spend_1"
LOWER_SPEND = "penstock_lower_spend_1"

# The first one took its arguments one by one.
ENQUEUE = "penstock_enqueue_2"
REGISTER = "penstock_register_1"
BEAT = "penstock_beat_1"
LEAVE = "penstock_leave_1"
# The first one took the adapters, which `POST_ADAPTERS` has now.
CLAIM = "penstock_claim_2"
POST_ADAPTERS = "penstock_post_adapters_2"
PREFETCH = "penstock_prefetch_1"
GIVE_ORDER = "penstock_give_order_1"
REPORT_PROGRESS = "penstock_report_progress_1"
HELD = "penstock_held_1"
FINISH = "penstock_finish_1"
CANCEL = "penstock_cancel_1"
REAP = "penstock_reap_1"
REAP_GONE = "penstock_reap_gone_1"
REQUEUE = "penstock_requeue_1"
ADOPT = "penstock_adopt_1"
EPOCH = "penstock_epoch_1"
FORECAST = "penstock_forecast_1"
ACKNOWLEDGE_USAGE = "penstock_acknowledge_usage_1"
MISSING_USAGE = "penstock_missing_usage_1"
APPEND_USAGE = "penstock_append_usage_1"
