"""The state machine of dispatch and reservations, over a real Redis."""

from tests.support.dispatch.machine import DispatchMachine

TestDispatchMachine = DispatchMachine.TestCase
