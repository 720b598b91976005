"""Which answers of Redis are weather, as redis-py hands them to whoever asked."""

import pytest
from redis._parsers.base import BaseParser
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import ResponseError

from gpu_workers.protocol.redis_errors import code_of, is_out_of_memory, is_transient
from tests.support.redis_servers.weather import ERRORS

OURS = [
    "ERR Error running script: attempt to index a nil value",
    "BUSYGROUP Consumer Group name already exists",
    "NOPERM this user has no permissions to run the 'get' command",
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "FENCED another process has taken the name of worker w#1",
    "UNKNOWN worker w#1 has to register first",
]


def answered(text: str) -> Exception:
    error: Exception = BaseParser.parse_error(text)  # type: ignore[no-untyped-call]
    return error


def quoted(text: str) -> Exception:
    """The same as a pipeline raises it."""
    error = answered(text)
    Pipeline.annotate_exception(None, error, 1, ("FCALL", "f", 1, "key"))  # type: ignore[arg-type]
    return error


@pytest.mark.parametrize("text", ERRORS)
def test_what_passes_is_weather_alone_and_in_a_pipeline(text: str) -> None:
    assert is_transient(answered(text))
    assert is_transient(quoted(text))
    assert code_of(answered(text)) == code_of(quoted(text)) == text.split()[0]
    assert is_out_of_memory(answered(text)) == text.startswith("OOM ")


@pytest.mark.parametrize("text", OURS)
def test_what_is_wrong_is_not(text: str) -> None:
    assert not is_transient(answered(text))
    assert not is_transient(quoted(text))


async def test_a_function_that_is_not_loaded_yet_is_weather(dispatch_redis: Redis) -> None:
    with pytest.raises(ResponseError) as alone:
        await dispatch_redis.fcall("of_nobody", 1, "key")
    pipeline = dispatch_redis.pipeline(transaction=False)
    pipeline.fcall("of_nobody", 1, "key")
    with pytest.raises(ResponseError) as in_pipeline:
        await pipeline.execute()
    assert is_transient(alone.value)
    assert is_transient(in_pipeline.value)


@pytest.mark.parametrize("error", [ConnectionResetError(), TimeoutError(), OSError(113, "no")])
def test_a_redis_that_is_away_is_weather(error: OSError) -> None:
    assert is_transient(error)
