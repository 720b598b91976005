"""The parts of vLLM's inside that we rely on and can do without."""

from enum import StrEnum


class Part(StrEnum):
    """Named for what is lost without it; operators read these names."""

    CHAT_FAST_PATH = "chat_fast_path"  # vLLM renders each token of a chat itself
    COMPLETIONS_FAST_PATH = "completions_fast_path"  # vLLM renders each token of a completion
    OUTPUT_DIVERSION = "output_diversion"  # each token wakes the task that asked for it
    RESUMPTION = "resumption"  # what another worker began starts over here, or ends typed
    QUEUE_LIMITS = "queue_limits"  # nothing but dispatch bounds what waits in the engine
    STEP_STATS = "step_stats"  # a hung engine is not found; its queue is not known
    ABORT = "abort"  # what was cancelled runs to its bound
    ADAPTERS = "adapters"  # it mixes them up: who names one is refused, as without adapters
