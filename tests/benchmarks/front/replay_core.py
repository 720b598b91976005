"""An engine process that answers with recorded tokens, behind vLLM's own sockets.

It runs as EngineCore does: what is waiting is admitted up to `max_num_seqs`, and each step gives
every running request one token. The next step is made when the one before has been taken, that is,
when AsyncLLM asks for more, and not before the pace says so: a step that found its reader late
would be merged with the next one, and the fewer events of a slow front would look cheap.

Runs in the engine's environment.
"""

import os
import socket
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy
import vllm
import zmq
from vllm.utils.network_utils import make_zmq_socket
from vllm.v1.engine import (
    EngineCoreEvent,
    EngineCoreEventType,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreReadyResponse,
    EngineCoreRequest,
    EngineCoreRequestType,
    FinishReason,
    UtilityOutput,
)
from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.metrics.stats import PrefillStats, SchedulerStats
from vllm.v1.outputs import LogprobsLists
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder, UtilityResult

from tests.benchmarks.front.pace import HOW_MANY, MORE, PACE
from tests.benchmarks.front.recording import recordings

KV_BLOCKS: Final = 8192  # as much as nobody fills
IDENTITY: Final = (0).to_bytes(2, "little")
IDLE_MS: Final = 1000
# What EngineCore's methods answer; those that are not here answer nothing. An engine without
# weights has one worker, with no module that an adapter could be for.
UTILITIES: Final = {"get_supported_tasks": ("generate",), "collective_rpc": [[]]}


def run(*, vllm_config: Any, handshake_address: str, **_: Any) -> None:
    """Run in EngineCore's place; called with what that is called with."""
    parent = os.getppid()
    context = zmq.Context()
    with make_zmq_socket(
        context, handshake_address, zmq.DEALER, identity=IDENTITY, linger=5000, bind=False
    ) as handshake:
        addresses = EngineCoreProc.startup_handshake(
            handshake, True, False, vllm_config.parallel_config
        )
        requests = make_zmq_socket(
            context, addresses.inputs[0], zmq.DEALER, identity=IDENTITY, bind=False
        )
        outputs = make_zmq_socket(context, addresses.outputs[0], zmq.PUSH, linger=0)
        requests.send(msgspec.msgpack.encode(_ready(vllm_config)))
        pace = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        pace.bind(os.environ[PACE])
        ready = {"status": "READY", "local": True, "headless": False}
        handshake.send(msgspec.msgpack.encode(ready))
    core = ReplayCore(vllm_config.scheduler_config.max_num_seqs)
    core.serve(requests, outputs, pace, parent)


class Sequence:
    """One request that runs."""

    __slots__ = ("alternatives", "left", "prompt_tokens", "queued_at", "request_id", "tokens")

    def __init__(self, request: EngineCoreRequest, tokens: Iterator[int]) -> None:
        params = request.sampling_params
        self.request_id = request.request_id
        self.prompt_tokens = len(request.prompt_token_ids or ())
        self.left = params.max_tokens or 1
        self.alternatives = params.logprobs
        self.tokens = tokens
        self.queued_at: float | None = time.monotonic()

    def next_output(self) -> EngineCoreOutput:
        token = next(self.tokens)
        self.left -= 1
        output = EngineCoreOutput(
            request_id=self.request_id,
            new_token_ids=[token],
            finish_reason=None if self.left else FinishReason.LENGTH,
            new_logprobs=None if self.alternatives is None else _logprobs(token, self.alternatives),
        )
        if self.queued_at is not None:
            prefill = PrefillStats()
            prefill.set(self.prompt_tokens, 0, 0)
            output.prefill_stats = prefill
            output.events = [
                EngineCoreEvent.new_event(EngineCoreEventType.QUEUED, self.queued_at),
                EngineCoreEvent.new_event(EngineCoreEventType.SCHEDULED),
            ]
            self.queued_at = None
        return output


class ReplayCore:
    """The queue and the steps of the replayed engine."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._step_seconds = 0.0
        self._recordings = recordings()
        self._waiting: deque[Sequence] = deque()
        self._running: dict[str, Sequence] = {}
        self._is_taken = False
        self._steps = 0
        self._next_step_at = 0.0
        self._encoder = MsgpackEncoder()
        self._decode_request = MsgpackDecoder(EngineCoreRequest).decode
        self._decode = MsgpackDecoder().decode

    def serve(self, requests: Any, outputs: Any, pace: socket.socket, parent: int) -> None:
        """Answer until the parent ends."""
        work, anything = zmq.Poller(), zmq.Poller()
        for poller in (work, anything):
            poller.register(requests, zmq.POLLIN)
        anything.register(pace, zmq.POLLIN)
        while os.getppid() == parent:
            # Before a step's time nothing that is said of it matters, and being told has its cost
            # for who tells.
            early_ms = 1000 * (self._next_step_at - time.monotonic())
            poller = work if early_ms >= 1 else anything
            ready = dict(poller.poll(early_ms if early_ms >= 1 else self._patience_ms()))
            if pace.fileno() in ready:
                self._hear(pace)
            if requests in ready:
                kind, *data = requests.recv_multipart(copy=False)
                for answer in self._receive(EngineCoreRequestType(bytes(kind.buffer)), data):
                    outputs.send_multipart(self._encoder.encode(answer))
                continue  # all that has come is part of the next step
            if self._is_due():
                outputs.send_multipart(self._encoder.encode(self._step()))

    def _hear(self, pace: socket.socket) -> None:
        said, who = pace.recvfrom(64)
        if said == MORE:
            self._is_taken = True
        elif said == HOW_MANY:
            pace.sendto(str(self._steps).encode(), who)
        else:
            self._step_seconds = float(said) / 1000

    def _patience_ms(self) -> float:
        is_waiting = not self._is_taken or not (self._running or self._waiting)
        return IDLE_MS if is_waiting else 0.0

    def _is_due(self) -> bool:
        has_work = bool(self._running or self._waiting)
        return self._is_taken and has_work and time.monotonic() >= self._next_step_at

    def _receive(self, kind: EngineCoreRequestType, data: list[Any]) -> list[EngineCoreOutputs]:
        if kind is EngineCoreRequestType.ADD:
            request = self._decode_request(data)
            self._waiting.append(Sequence(request, self._tokens_of(request)))
        elif kind is EngineCoreRequestType.ABORT:
            gone = set(self._decode(data))
            self._waiting = deque(each for each in self._waiting if each.request_id not in gone)
            for request_id in gone:
                self._running.pop(request_id, None)
        elif kind is EngineCoreRequestType.UTILITY:
            _, call_id, method, _ = self._decode(data)
            answer = UtilityOutput(call_id=call_id, result=UtilityResult(UTILITIES.get(method)))
            return [EngineCoreOutputs(utility_output=answer)]
        return []

    def _step(self) -> EngineCoreOutputs:
        while self._waiting and len(self._running) < self._slots:
            sequence = self._waiting.popleft()
            self._running[sequence.request_id] = sequence
        outputs = [sequence.next_output() for sequence in self._running.values()]
        for output in outputs:
            if output.finish_reason is not None:
                del self._running[output.request_id]
        self._is_taken = False
        self._steps += 1
        self._next_step_at = time.monotonic() + self._step_seconds
        return EngineCoreOutputs(
            outputs=outputs,
            scheduler_stats=SchedulerStats(
                num_running_reqs=len(self._running), num_waiting_reqs=len(self._waiting)
            ),
        )

    def _tokens_of(self, request: EngineCoreRequest) -> Iterator[int]:
        """Return what was recorded for this prompt or, if it was not, for the first one; from the
        beginning again at its end."""
        first = next(iter(self._recordings.values()))
        recorded = self._recordings.get(tuple(request.prompt_token_ids or ()), first)
        while True:
            yield from recorded


def _logprobs(token: int, alternatives: int) -> LogprobsLists:
    """Return one position, as likely as its alternatives: a front only counts and renders them."""
    width = alternatives + 1
    return LogprobsLists(
        numpy.full((1, width), token), numpy.zeros((1, width)), numpy.zeros(1, dtype=int)
    )


def _ready(vllm_config: Any) -> EngineCoreReadyResponse:
    parallel, scheduler = vllm_config.parallel_config, vllm_config.scheduler_config
    return EngineCoreReadyResponse(
        max_model_len=vllm_config.model_config.max_model_len,
        num_gpu_blocks=KV_BLOCKS,
        block_size=vllm_config.cache_config.block_size,
        dp_stats_address=None,
        dtype=str(vllm_config.model_config.dtype).removeprefix("torch."),
        vllm_version=vllm.__version__,
        world_size=parallel.world_size,
        data_parallel_size=parallel.data_parallel_size,
        tensor_parallel_size=parallel.tensor_parallel_size,
        pipeline_parallel_size=parallel.pipeline_parallel_size,
        decode_context_parallel_size=parallel.decode_context_parallel_size,
        data_parallel_rank=0,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        instance_id=vllm_config.instance_id,
        supports_lora=False,
        max_loras=0,
    )
