"""schemathesis over /v1, on a gateway with the simulated engine: no 5xx, no status or answer that
the document does not tell."""

import asyncio
import json
import os
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from control_plane.management_api.openapi.document import document

from tests.support.fuzzing.api import Case, Fuzzer, is_positive, operations_of, schema_of
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.processes import a_sim_worker
from tests.support.gateways.service import Service, Snapshot, a_tier

pytestmark = pytest.mark.stack
# Of `make test`; `make fuzz-api` asks more.
CASES = int(os.environ.get("FUZZ_INFERENCE_CASES", "120"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
TIMEOUT_SECONDS = 20


@pytest.fixture
async def sim_worker(worker_redis_url: Callable[[str], str]) -> AsyncIterator[Process]:
    async with a_sim_worker(worker_redis_url(POOL), PENSTOCK_SIM_STEP_MS="0") as process:
        yield process


@pytest.fixture
async def wide_service(service: Service, snapshot: Snapshot) -> Service:
    """Alice's tier lets all through."""
    tier = a_tier(requests_per_minute=10**6, max_concurrent_requests=10**4)
    return replace(service, alice=await snapshot.add_key("Acme", tier=tier))


async def test_whatever_is_asked_is_answered_as_the_document_tells(
    wide_service: Service, sim_worker: Process
) -> None:
    service = wide_service

    def ask(case: Case) -> None:
        if is_positive(case) and isinstance(case.body, dict):
            case.body["model"] = MODEL
        case.call_and_validate(
            base_url=service.url,
            headers={"Authorization": f"Bearer {service.alice}"},
            timeout=TIMEOUT_SECONDS,
        )

    schema = schema_of(json.loads(json.dumps(document())))
    # Uploads are Django's.
    operations = [
        each for each in operations_of(schema, "/v1/") if not each.path.startswith("/v1/uploads")
    ]
    fuzzer = Fuzzer(ask=ask, ids={"model": MODEL}, seed=SEED)
    await asyncio.to_thread(fuzzer.ask_all, operations, cases=CASES)
    assert not fuzzer.found, "\n\n".join(fuzzer.found)
