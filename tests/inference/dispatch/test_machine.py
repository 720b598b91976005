"""The state machine of dispatch and reservations, over a real Redis."""

from hypothesis import HealthCheck, settings

from tests.support.dispatch.machine import DispatchMachine

DispatchMachine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

TestDispatchMachine = DispatchMachine.TestCase
