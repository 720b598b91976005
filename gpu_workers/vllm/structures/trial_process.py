"""Compiles structures for a worker in a process of its own, which the kernel can stop.

    python -m gpu_workers.vllm.structures.trial_process

Nothing else can be done about a compilation that takes minutes or gigabytes: xgrammar has no limit
of its own. Each trial is a fork, so it starts at once and leaves nothing behind. Reads a
`Vocabulary` and then `Structure`s from stdin, writes a `Verdict` of each to stdout.
"""

import os
import random
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
import xgrammar

from gpu_workers.process_tree import die_with_parent
from gpu_workers.vllm.structures import trial
from gpu_workers.vllm.structures.trial import (
    Finding,
    Structure,
    StructureKind,
    Verdict,
    Vocabulary,
    Walk,
)

_NICE: Final = 10
# A trial that has not had its seconds of CPU after so many times as many, half a minute at least,
# is over too, and says nothing of the structure: others had the CPU.
_WALL_TIMES_CPU: Final = 6
_FEWEST_WALL_SECONDS: Final = 30
_FEWEST_OF_A_QUARTER: Final = 16
_MAY_BE_AMBIGUOUS: Final = (StructureKind.REGEX, StructureKind.GRAMMAR, StructureKind.LARK)
# How xgrammar, which is C++, says that there is no memory: in a RuntimeError.
_BAD_ALLOC: Final = "bad_alloc"
_PAGE_BYTES: Final = resource.getpagesize()

# Chooses the next token, of a bitmask of those that are allowed, 32 a word.
Choose = Callable[[list[int]], int | None]


def main() -> None:
    die_with_parent()
    os.nice(_NICE)
    requests, verdicts = sys.stdin.buffer, sys.stdout.buffer
    vocabulary = msgspec.msgpack.decode(trial.read(requests), type=Vocabulary)
    tokenizer = xgrammar.TokenizerInfo.deserialize_json(vocabulary.tokenizer)
    while data := trial.read(requests):
        structure = msgspec.msgpack.decode(data, type=Structure)
        trial.write(verdicts, _try_in_a_fork(vocabulary, tokenizer, structure))


def _try_in_a_fork(vocabulary: Vocabulary, tokenizer: Any, structure: Structure) -> Verdict:
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(readable)
        _run_trial(vocabulary, tokenizer, structure, writable)
    os.close(writable)
    seconds = max(vocabulary.cpu_seconds * _WALL_TIMES_CPU, _FEWEST_WALL_SECONDS)
    is_over, _, _ = select.select([readable], [], [], seconds)
    data = os.read(readable, select.PIPE_BUF) if is_over else b""
    os.close(readable)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if data:
        return msgspec.msgpack.decode(data, type=Verdict)
    if not is_over:
        return Verdict(Finding.STARVED)
    # The kernel's limit of CPU time is a SIGXCPU; any other death is one of memory or of recursion.
    is_slow = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
    return Verdict(Finding.TOO_SLOW if is_slow else Finding.TOO_LARGE)


def _run_trial(vocabulary: Vocabulary, tokenizer: Any, structure: Structure, writable: int) -> None:
    """Try one structure within its limits, and end this process."""
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (vocabulary.cpu_seconds,) * 2)
        memory = _address_space() + vocabulary.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        os.write(writable, msgspec.msgpack.encode(_try(vocabulary, tokenizer, structure)))
    finally:
        os._exit(0)


def _try(vocabulary: Vocabulary, tokenizer: Any, structure: Structure) -> Verdict:
    # In JSON the cost depends on the place, which looks like growth.
    may_be_ambiguous = structure.kind in _MAY_BE_AMBIGUOUS
    try:
        compiled = _compile(vocabulary, tokenizer, structure)
        walks = _walks(compiled, tokenizer, may_be_ambiguous=may_be_ambiguous)
    except MemoryError:
        return Verdict(Finding.TOO_LARGE)
    except Exception as error:  # noqa: BLE001 - vLLM finds the words for it
        if _BAD_ALLOC in str(error):
            return Verdict(Finding.TOO_LARGE)
        return Verdict(Finding.INVALID)
    return Verdict(Finding.COMPILED, walks)


def _compile(vocabulary: Vocabulary, tokenizer: Any, structure: Structure) -> Any:
    """Compile as vLLM's engine does, which has a cache: with one xgrammar fails at patterns of more
    than a hundred repetitions in JSON (0.2.8), without it does not."""
    compiler = xgrammar.GrammarCompiler(tokenizer, max_threads=1, cache_enabled=True)
    text = structure.text
    match structure.kind:
        case StructureKind.JSON:
            return compiler.compile_json_schema(
                text,
                any_whitespace=vocabulary.any_whitespace,
                separators=None if vocabulary.any_whitespace else (",", ":"),
            )
        case StructureKind.REGEX:
            return compiler.compile_regex(text)
        case StructureKind.GRAMMAR:
            return compiler.compile_grammar(text)
        case StructureKind.LARK:
            return compiler.compile_lark(text)
        case StructureKind.STRUCTURAL_TAG:
            return _compile_structural_tag(compiler, text)


def _compile_structural_tag(compiler: Any, text: str) -> Any:
    tag = msgspec.json.decode(text)
    if "structures" not in tag:
        return compiler.compile_structural_tag(text)
    items = [
        xgrammar.StructuralTagItem(
            begin=each["begin"],
            schema=msgspec.json.encode(each["schema"]).decode(),
            end=each["end"],
        )
        for each in tag["structures"]
    ]
    return compiler.compile_structural_tag(items, tag["triggers"])


def _walks(compiled: Any, tokenizer: Any, *, may_be_ambiguous: bool) -> list[Walk]:
    ends = frozenset(tokenizer.stop_token_ids)
    return [
        _walk(compiled, tokenizer.vocab_size, choose, may_be_ambiguous=may_be_ambiguous)
        for choose in (_Wanderer(ends), _Repeater(ends))
    ]


def _walk(compiled: Any, vocabulary_size: int, choose: Choose, *, may_be_ambiguous: bool) -> Walk:
    """Follow it until it ends, or the cost of going on is known well enough."""
    matcher = xgrammar.GrammarMatcher(compiled)
    bitmask = xgrammar.allocate_token_bitmask(1, vocabulary_size)
    spent, slowest = 0.0, 0.0
    by_token: list[float] = []  # as the clock on the wall has it, which is finer
    while len(by_token) < trial.WALK_TOKENS and spent < trial.WALK_SECONDS:
        cpu, wall = time.process_time(), time.perf_counter()
        matcher.fill_next_token_bitmask(bitmask)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        token_id = choose(bitmask.numpy()[0].astype("uint32").tolist())
        if token_id is None:
            break
        cpu, wall = cpu - time.process_time(), wall - time.perf_counter()
        matcher.accept_token(token_id)
        cpu, wall = cpu + time.process_time(), wall + time.perf_counter()
        spent += cpu
        # Each alone says too much: CPU is counted in ticks, and others may have had it.
        slowest = max(slowest, min(cpu, wall))
        by_token.append(wall)
        if matcher.is_terminated():
            break
    quarter, is_slow = len(by_token) // 4, spent >= trial.WALK_SECONDS
    if quarter < _FEWEST_OF_A_QUARTER:
        return Walk(len(by_token), slowest, slowest, grows=False, is_slow=is_slow)
    late, early = median(by_token[-quarter:]), median(by_token[quarter : 2 * quarter])
    grows = may_be_ambiguous and late > 2 * early
    return Walk(len(by_token), slowest, late, grows=grows, is_slow=is_slow)


class _Wanderer:
    """Takes any token that may come next, but no end while there is another."""

    def __init__(self, ends: frozenset[int]) -> None:
        self._ends = ends
        self._draw = random.Random(0)

    def __call__(self, words: list[int]) -> int | None:
        return self._first_from(words, self._draw.randrange(len(words)))

    def _first_from(self, words: list[int], start: int) -> int | None:
        for position in range(len(words)):
            index = (start + position) % len(words)
            allowed = [32 * index + bit for bit in range(32) if words[index] >> bit & 1]
            allowed = [token_id for token_id in allowed if token_id not in self._ends]
            if allowed:
                return self._draw.choice(allowed)
        return None


class _Repeater(_Wanderer):
    """Takes the same token again where it may."""

    def __init__(self, ends: frozenset[int]) -> None:
        super().__init__(ends)
        self._last = 0

    def __call__(self, words: list[int]) -> int | None:
        if words[self._last // 32] >> self._last % 32 & 1 and self._last not in self._ends:
            return self._last
        chosen = self._first_from(words, 0)
        self._last = chosen or 0
        return chosen


def _address_space() -> int:
    pages = Path("/proc/self/statm").read_text().split()[0]
    return int(pages) * _PAGE_BYTES


if __name__ == "__main__":
    main()
