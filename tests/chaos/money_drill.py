"""Everything is broken in turn while clients leave at random tokens: the books have to be right."""

import asyncio
import os
import random
import signal
import time
import uuid
from typing import Any

from asgiref.sync import sync_to_async

from tests.chaos.load import PROMPTS, TOKENS, Answer, Load, read_answer
from tests.chaos.prepaid import (
    AMPLE_NANOS,
    ShortOfCredit,
    give_credit,
    owed_by,
    short_of_credit,
    spend_is_right,
)
from tests.chaos.processes import metric, until
from tests.chaos.report import Report
from tests.chaos.stack import Stack
from tests.support.places import LOOPBACK

STREAMS = 60
LEAVERS = 40
CALM_SECONDS = 5.0
ROUNDS = 2


async def money(stack: Stack, report: Report) -> None:
    """Clients leave at random tokens; workers, gateways, collector, PostgreSQL, Redis are killed
    in turn, and workers give back what they hold. Afterwards every request has one record, and
    fsck finds nothing."""
    drill = "money"
    await give_credit(stack.tenant_id, AMPLE_NANOS)
    # For the drills before this one it pays afterwards.
    owed_before = await owed_by(stack.tenant_id)
    short = await short_of_credit(stack)
    load = Load(stack.ports, stack.target, streams=STREAMS)
    await load.learn()
    load.start()
    short.load.start()
    leavers = Leavers(load)
    leavers.start()
    blows = [_kill_worker, _kill_gateway, _kill_collector, _restart_postgres, _empty_redis]
    for blow in [*blows, _end_worker] * ROUNDS:
        await asyncio.sleep(CALM_SECONDS)
        if blow is _empty_redis:
            await short.give_more()
        await blow(stack, load)
        short.load.ports = load.ports
    await asyncio.sleep(2 * CALM_SECONDS)
    await leavers.stop()
    await load.stop()
    await short.load.stop()
    seconds = await until(stack.is_empty, seconds=120)
    report.add(
        drill, "until queues, leases, reservations and streams were empty", seconds, "s", most=60
    )
    seconds = await until(lambda: _outboxes_are_empty(stack), seconds=120)
    report.add(drill, "until every outbox was empty", seconds, "s", most=60)
    await _drain_workers(stack)
    await _count_credit(stack, short, owed_before, drill, report)
    await _count(stack, load.answers + leavers.answers, drill, report)


class Leavers:
    """Clients that go away in the middle of their answers."""

    def __init__(self, load: Load) -> None:
        self.answers: list[Answer] = []
        self._load = load
        self._random = random.Random(20261121)
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._leave_again(n)) for n in range(LEAVERS)]

    async def stop(self) -> None:
        self._is_stopping = True
        await asyncio.gather(*self._tasks)

    async def _leave_again(self, number: int) -> None:
        turn = number
        while not self._is_stopping:
            ports = self._load.ports
            await self._ask_and_leave(PROMPTS[turn % len(PROMPTS)], ports[turn % len(ports)])
            turn += 1

    async def _ask_and_leave(self, prompt: str, port: int) -> None:
        tokens, received = self._random.randrange(TOKENS), bytearray()
        try:
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            await asyncio.sleep(0.2)
            return
        try:
            writer.write(self._load.request(prompt, port))
            while received.count(b'"content":"') <= tokens:
                data = await asyncio.wait_for(reader.read(65_536), 90)
                if not data:
                    break
                received += data
        except (OSError, TimeoutError):
            pass
        finally:
            writer.transport.abort()
        answer = Answer(prompt=prompt)
        read_answer(answer, bytes(received))
        self.answers.append(answer)
        if answer.status != 200:
            await asyncio.sleep(0.2)


async def _kill_worker(stack: Stack, load: Load) -> None:
    worker = stack.workers.pop(0)
    worker.signal(signal.SIGKILL)
    await worker.process.wait()
    await asyncio.sleep(1)
    await stack.add_worker(name=worker.name)


async def _end_worker(stack: Stack, load: Load) -> None:
    """Its drain is cut short: what it holds goes on in the other workers."""
    worker = stack.workers.pop(0)
    worker.signal(signal.SIGTERM)
    await asyncio.sleep(0.5)
    worker.signal(signal.SIGTERM)
    await worker.process.wait()
    await stack.add_worker(name=worker.name)


async def _kill_gateway(stack: Stack, load: Load) -> None:
    stack.gateways.pop(0).kill()
    load.ports = stack.ports
    await stack.add_gateway()
    load.ports = stack.ports


async def _kill_collector(stack: Stack, load: Load) -> None:
    os.killpg(stack.collector.pid, signal.SIGKILL)
    await stack.collector.wait()
    await asyncio.sleep(1)
    await stack.start_collector()


async def _restart_postgres(stack: Stack, load: Load) -> None:
    await asyncio.to_thread(stack.servers.restart_postgres)
    await sync_to_async(_close_connection)()


def _close_connection() -> None:
    """The drill's own one, which went with the server."""
    from django.db import connection

    connection.close()


async def _empty_redis(stack: Stack, load: Load) -> None:
    await asyncio.to_thread(stack.servers.kill_dispatch_redis)
    await asyncio.sleep(1)
    await asyncio.to_thread(stack.servers.start_dispatch_redis)
    await stack.redis.connection_pool.disconnect()
    await until(stack.is_ready)
    await asyncio.sleep(CALM_SECONDS)


async def _outboxes_are_empty(stack: Stack) -> bool:
    name = "penstock_worker_outbox_entries"
    return not sum([await metric(worker.url, name) for worker in stack.workers])


async def _drain_workers(stack: Stack) -> None:
    """Each tells at its end what its engine has generated by its own count."""
    for worker in stack.workers:
        worker.signal(signal.SIGTERM)
    await asyncio.gather(*(worker.process.wait() for worker in stack.workers))
    stack.workers.clear()
    await until(stack.is_empty)


async def _count_credit(
    stack: Stack, short: ShortOfCredit, owed_before: int, drill: str, report: Report
) -> None:
    seconds = await until(spend_is_right, seconds=240)
    report.add(drill, "until prepaid spend is what the ledger says", seconds, "s", most=200)
    owed = await owed_by(stack.tenant_id) - owed_before
    report.add(drill, "nano-dollars owed by a tenant with ample credit", owed, most=0)
    outcomes = short.load.outcomes()
    report.add(drill, "answers to a tenant whose credit runs out", outcomes["complete"])
    report.add(drill, "of its requests refused for that", outcomes["insufficient_quota"])
    owed = await owed_by(short.tenant_id)
    report.add(drill, "nano-dollars that it owes", owed, most=0)


async def _count(stack: Stack, answers: list[Answer], drill: str, report: Report) -> None:
    begun = {each.request_id: each for each in answers if each.request_id and each.status == 200}
    records = await stack.records(begun)
    complete = {one: each for one, each in begun.items() if each.is_complete}
    report.add(drill, "requests that were answered", len(begun))
    report.add(drill, "of them complete", len(complete))
    report.add(drill, "requests without a record", len(begun.keys() - records.keys()), most=0)
    wrong = [one for one in complete if one in records and records[one].completion_tokens != TOKENS]
    report.add(drill, "complete answers whose record says other tokens", len(wrong), most=0)
    charges = await sync_to_async(_charges)(stack.tenant_id)
    report.add(drill, "nano-dollars on record", charges["records"])
    off = abs(charges["records"] - charges["ledger"])
    report.add(drill, "nano-dollars that the ledger is off", off, most=0)
    report.add(drill, "usage in quarantine", charges["quarantined"], most=0)
    wasted = charges["wasted"]
    report.add(drill, "tokens that were generated for nothing", wasted)
    report.add(drill, "tokens that attempts tell their engines generated", charges["generated"])
    report.add(
        drill, "tokens that engines counted in lives that can be compared", charges["counted"]
    )
    report.add(drill, "such lives", charges["lives"])
    started = time.monotonic()
    findings = await fsck(stack)
    report.add(drill, "what fsck finds", len(findings), most=0)
    report.add(drill, "fsck took", time.monotonic() - started, "s")
    for finding in findings[:20]:
        print(f"    {finding}", flush=True)


def _charges(tenant_id: str) -> dict[str, int]:
    from django.db.models import Sum

    from inference.models import EngineTokenCounter, UsageQuarantine, UsageRecord, WastedAttempt
    from tenants.billing.ledger.balances import charged_usage
    from tenants.isolation.scoping import operator_scope

    with operator_scope("chaos drills"):
        records: Any = UsageRecord.objects.filter(tenant_id=tenant_id)
        sums = records.aggregate(
            nanos=Sum("cost_nanos"), wasted=Sum("wasted_tokens"), own=Sum("generated_tokens")
        )
        attempts = WastedAttempt.objects.filter(tenant_id=tenant_id)
        others = attempts.aggregate(wasted=Sum("completion_tokens"), own=Sum("generated_tokens"))
        charged = charged_usage([uuid.UUID(tenant_id)])
        return {
            "records": int(sums["nanos"] or 0),
            "ledger": sum(charged.values()),
            "quarantined": UsageQuarantine.objects.count(),
            "wasted": int(sums["wasted"] or 0) + int(others["wasted"] or 0),
            "generated": int(sums["own"] or 0) + int(others["own"] or 0),
            "counted": int(
                EngineTokenCounter.objects.aggregate(n=Sum("generated_tokens"))["n"] or 0
            ),
            "lives": EngineTokenCounter.objects.count(),
        }


async def fsck(stack: Stack) -> list[str]:
    """The command itself, as an operator runs it."""
    process = await stack.processes.start("manage.py", "fsck")
    await process.wait()
    lines = stack.processes.log_of(process).splitlines()
    return [] if process.returncode == 0 else [line for line in lines if line.strip()]
