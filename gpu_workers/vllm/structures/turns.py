"""Who waits for which structure, and which is tried next.

The tenant whose trials took the least time comes next: one with expensive structures holds up the
others by the trial that runs, however many more it sends, and its own requests not for long either.
What nobody waits for any more is not begun.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gpu_workers.vllm.structures.trial import Structure, Verdict

Clock = Callable[[], float]


class OwnTrialsAhead(Exception):
    """A request has waited for trials of its own tenant for too long; so many were ahead."""

    def __init__(self, ahead: int) -> None:
        super().__init__(f"{ahead} of its tenant's own structures were ahead")
        self.ahead = ahead


@dataclass(eq=False, kw_only=True)
class Trial:
    """The trial of one text for all who wait for it. Until it begins it is in the queue of each of
    their tenants, so that nobody waits for it longer than if nobody else had asked."""

    digest: bytes
    structure: Structure
    waiters: "set[Waiter]" = field(default_factory=set)


@dataclass(eq=False, kw_only=True)
class Waiter:
    """A request that waits. When it came its tenant had taken `joined_at`, and so many trials of
    its own were `ahead`. It is `refusing` while one of these runs, for when that is too long."""

    tenant_id: str
    trial: Trial
    verdict: asyncio.Future[Verdict]
    joined_at: float = 0.0
    ahead: int = 0
    refusing: asyncio.TimerHandle | None = None

    def spare(self) -> None:
        """Cancel the refusal that is to come."""
        if self.refusing is not None:
            self.refusing.cancel()
            self.refusing = None


@dataclass(eq=False, kw_only=True)
class _Tenant:
    """`taken`: the seconds of its trials, but no less than others had when it began to wait, so
    that nobody saves time up."""

    tenant_id: str
    taken: float
    queue: dict[bytes, Trial] = field(default_factory=dict)

    def waiters(self) -> Iterator[Waiter]:
        for trial in self.queue.values():
            yield from (each for each in trial.waiters if each.tenant_id == self.tenant_id)


class Turns:
    """The queues of all tenants, and the trial that runs. Times are seconds of one clock."""

    def __init__(self, clock: Clock, *, most_own_seconds: float) -> None:
        self._clock = clock
        self._most_own_seconds = most_own_seconds
        self._trials: dict[bytes, Trial] = {}
        self._tenants: dict[str, _Tenant] = {}
        self._running: tuple[_Tenant, Trial] | None = None
        self._began_at = 0.0
        # What the tenant had taken whose turn it is, or was.
        self._reached = 0.0

    def join(self, tenant_id: str, digest: bytes, structure: Structure) -> Waiter:
        """Have a request wait. Its `verdict` is what `end` gives, or raises `OwnTrialsAhead`."""
        trial = self._trials.setdefault(digest, Trial(digest=digest, structure=structure))
        verdict = asyncio.get_running_loop().create_future()
        waiter = Waiter(tenant_id=tenant_id, trial=trial, verdict=verdict)
        trial.waiters.add(waiter)
        if not self._has_begun(trial):
            self._queue(waiter)
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Take a waiter out, and its trial where it has not begun and nobody else waits for it."""
        trial = waiter.trial
        trial.waiters.discard(waiter)
        waiter.spare()
        if self._trials.get(trial.digest) is not trial or self._has_begun(trial):
            return
        if all(each.tenant_id != waiter.tenant_id for each in trial.waiters):
            del self._tenants[waiter.tenant_id].queue[trial.digest]
        if not trial.waiters:
            del self._trials[trial.digest]

    def begin(self) -> Trial | None:
        """Return the trial that is next, and runs until `end`; None if nobody waits."""
        waiting = [each for each in self._tenants.values() if each.queue]
        if not waiting:
            self._tenants.clear()
            return None
        tenant = min(waiting, key=lambda each: each.taken)
        trial = next(iter(tenant.queue.values()))
        for each in waiting:
            each.queue.pop(trial.digest, None)
        for waiter in trial.waiters:
            waiter.spare()
        self._running = tenant, trial
        self._began_at, self._reached = self._clock(), tenant.taken
        for waiter in tenant.waiters():
            self._refuse_later(waiter, tenant.taken - waiter.joined_at)
        return trial

    def end(self, outcome: Verdict | Exception) -> None:
        """Tell all who wait for the trial that runs how it ended."""
        assert self._running is not None  # noqa: S101 - `begin` comes first
        tenant, trial = self._running
        self._running = None
        tenant.taken += self._clock() - self._began_at
        for waiter in tenant.waiters():
            waiter.spare()  # while others have their turn
        # Who waits for nothing, and took no more than the others, is as good as new.
        self._tenants = {
            key: each
            for key, each in self._tenants.items()
            if each.queue or each.taken > self._reached
        }
        del self._trials[trial.digest]
        for waiter in trial.waiters:
            _settle(waiter, outcome)

    def _has_begun(self, trial: Trial) -> bool:
        return self._running is not None and self._running[1] is trial

    def _queue(self, waiter: Waiter) -> None:
        fresh = _Tenant(tenant_id=waiter.tenant_id, taken=self._reached)
        tenant = self._tenants.setdefault(waiter.tenant_id, fresh)
        if not tenant.queue:
            tenant.taken = max(tenant.taken, self._reached)
        tenant.queue.setdefault(waiter.trial.digest, waiter.trial)
        waiter.joined_at = tenant.taken
        waiter.ahead = list(tenant.queue).index(waiter.trial.digest)
        if self._running is not None and self._running[0] is tenant:
            waiter.joined_at += self._clock() - self._began_at
            waiter.ahead += 1
            self._refuse_later(waiter, 0.0)

    def _refuse_later(self, waiter: Waiter, waited: float) -> None:
        seconds = max(0.0, self._most_own_seconds - waited)
        refusal = OwnTrialsAhead(waiter.ahead)
        loop = asyncio.get_running_loop()
        waiter.refusing = loop.call_later(seconds, _settle, waiter, refusal)


def _settle(waiter: Waiter, outcome: Verdict | Exception) -> None:
    if waiter.verdict.done():
        return
    if isinstance(outcome, Exception):
        waiter.verdict.set_exception(outcome)
    else:
        waiter.verdict.set_result(outcome)
