"""A model and the workers of its pool, as one request found them: read once, decided on often."""

from dataclasses import dataclass
from typing import Final

from gpu_workers.protocol.messages import WorkerInfo, WorkerState
from gpu_workers.protocol.policy import ModelPolicy
from inference.dispatch.worker_registry import PoolWorker

# Of a pool whose workers have never said what their template adds.
UNKNOWN_OVERHEAD_TOKENS: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolView:
    """The workers, one of each kind, include dead ones until they are forgotten; their bounds
    outlive them."""

    model: ModelPolicy
    workers: tuple[PoolWorker, ...]

    @property
    def can_resume(self) -> bool:
        """Return whether each live worker can go on from the output of any other."""
        return all(worker.info.can_resume for worker in self.workers if worker.is_live)

    @property
    def template_overhead_tokens(self) -> int:
        """Return the most tokens that the chat template of any worker adds to one message."""
        return max(
            (info.template_overhead_tokens for info in self._started),
            default=UNKNOWN_OVERHEAD_TOKENS,
        )

    @property
    def slots(self) -> int | None:
        """Return how many sequences the largest live worker decodes at a time; None where none has
        said."""
        return max(
            (
                each.info.slots
                for each in self.workers
                if each.is_live and each.info.state is not WorkerState.STARTING
            ),
            default=None,
        )

    def context_tokens(self, limit: int | None) -> int:
        """Return the largest context of any worker, the model's where none has said; `limit` is
        the caller's tier's."""
        context = max(
            (info.context_tokens for info in self._started), default=self.model.context_tokens
        )
        return min(context, limit or context)

    def exceeded_context(
        self, text_bytes: int, limit: int | None, *, token_ids: int = 0
    ) -> int | None:
        """Return the largest context, in tokens, that a prompt of so many UTF-8 bytes, or of so
        many token ids, is too long for however it is tokenized; None where it may fit some live
        worker. A token is at most `max_token_bytes` long, so this never refuses what would fit."""
        contexts = [
            (min(worker.info.context_tokens, limit or worker.info.context_tokens), worker.info)
            for worker in self.workers
            if worker.is_live and worker.info.state is not WorkerState.STARTING
        ]
        if not contexts or any(
            text_bytes <= context * max(1, info.max_token_bytes) and token_ids <= context
            for context, info in contexts
        ):
            return None
        return max(context for context, _ in contexts)

    @property
    def _started(self) -> list[WorkerInfo]:
        return [each.info for each in self.workers if each.info.state is not WorkerState.STARTING]
