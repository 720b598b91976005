"""Which APIs the simulated engine serves."""

from gpu_workers.protocol.messages import Api
from gpu_workers.sim.endpoints.registry import ENDPOINTS


def test_every_api_has_an_endpoint() -> None:
    assert set(ENDPOINTS) == set(Api)
