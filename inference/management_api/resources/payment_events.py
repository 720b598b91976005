"""POST payments/stripe: where Stripe tells that something was paid. No credential of ours: what it
sends is signed, and what is not signed by Stripe is refused and kept for an operator to see."""

from typing import Final

from rest_framework.response import Response

from inference.errors import BodyTooLarge, InvalidRequest, NotFound
from inference.management_api.authentication import address_of
from inference.management_api.bodies import Nothing, read_query
from inference.management_api.errors import NOTHING_HERE
from inference.management_api.view import ManagementView
from tenants.billing.payments.events import is_stripe_expected, receive_stripe_event

_MAX_BYTES: Final = 256 * 1024


class StripeEventsView(ManagementView):
    def identify(self) -> None:
        """Trust the signature: whoever can sign is Stripe."""
        self.query = read_query(self.request, Nothing)

    def post(self) -> Response:
        if not is_stripe_expected():
            raise NotFound(NOTHING_HERE)
        request = self.request._request
        body = request.read(_MAX_BYTES + 1)
        if len(body) > _MAX_BYTES:
            raise BodyTooLarge(f"An event may have at most {_MAX_BYTES} bytes.")
        signature = request.META.get("HTTP_STRIPE_SIGNATURE", "")
        received = receive_stripe_event(body, signature, address_of(self.request))
        if not received.is_accepted:
            raise InvalidRequest(
                "This is not signed by Stripe for us, or was signed too long ago.",
                code="bad_signature",
            )
        return Response({"object": "payment_event", "verdict": received.verdict.value})
