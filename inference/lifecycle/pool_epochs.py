"""Which pools a lost Redis has forgotten, and which of them are being recovered."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from inference.dispatch.queue import Dispatch


class PoolEpochs:
    """Follows the epoch of each pool's Redis: a new one means that everything is gone."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._epochs: dict[str, str] = {}
        self._recovering: set[str] = set()

    def is_recovering(self, pool: str) -> bool:
        return pool in self._recovering

    async def is_recovery_due(self, pool: str) -> bool:
        """Return whether Redis has lost the pool since this was last asked. If so, it counts as
        recovering from now on; what recovers it does so inside `recovery_of`."""
        epoch = await self._dispatch.epoch(pool, secrets.token_hex(8))
        known = self._epochs.setdefault(pool, epoch)
        if epoch == known or pool in self._recovering:
            return False
        self._epochs[pool] = epoch
        self._recovering.add(pool)
        return True

    @contextmanager
    def recovery_of(self, pool: str) -> Iterator[None]:
        """Mark a pool as recovering for the block. If it raises, recovery is due again."""
        try:
            yield
        except BaseException:
            self._epochs[pool] = ""
            raise
        finally:
            self._recovering.discard(pool)
