"""POST payments/stripe: where Stripe tells that something was paid. No credential of ours: what it
sends is signed, and what is not signed by Stripe is refused and kept for an operator to see."""

from typing import Any, ClassVar, Final

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.management_api.errors import NOTHING_HERE
from control_plane.management_api.viewsets import ManagementViewSet
from control_plane.records import fields
from inference.errors import BodyTooLarge, InvalidRequest, NotFound, Unavailable
from tenants.billing.payments.events import is_stripe_expected, receive_stripe_event
from tenants.isolation.audit_actor import address_of

_MAX_BYTES: Final = 256 * 1024


class PaymentEventSerializer(serializers.Serializer[Any]):
    object = fields.ConstantField("payment_event")
    verdict = fields.CharField(read_only=True)


class StripeEventViewSet(ManagementViewSet):
    """Trusts the signature, whatever the headers say: whoever can sign is Stripe."""

    authentication_classes = []
    permission_classes = [AllowAny]
    summaries: ClassVar = {"create": "Receive an event of Stripe"}
    more_refusals: ClassVar = frozenset({404})

    def perform_content_negotiation(
        self, request: Request, force: bool = False
    ) -> tuple[BaseRenderer, str]:
        return super().perform_content_negotiation(request, force=True)

    def perform_authentication(self, request: Request) -> None:
        """Ask for nothing."""

    @extend_schema(
        description="Takes no credential of ours: the header `Stripe-Signature` proves who sends "
        "it. Where Stripe does not collect, the address does not exist.",
        request={"application/json": OpenApiTypes.OBJECT},
        parameters=[OpenApiParameter("Stripe-Signature", str, OpenApiParameter.HEADER)],
        responses={200: PaymentEventSerializer},
    )
    def create(self, request: Request) -> Response:
        if not is_stripe_expected():
            raise NotFound(NOTHING_HERE)
        body = request._request.read(_MAX_BYTES + 1)
        if len(body) > _MAX_BYTES:
            raise BodyTooLarge(f"An event may have at most {_MAX_BYTES} bytes.")
        signature = request.META.get("HTTP_STRIPE_SIGNATURE", "")
        received = receive_stripe_event(body, signature, address_of(request))
        if received.is_to_come_again:
            raise Unavailable("This could not be looked into now; send it again.")
        if not received.is_accepted:
            raise InvalidRequest(
                "This is not signed by Stripe for us, or was signed too long ago.",
                code="bad_signature",
            )
        return Response(PaymentEventSerializer(received).data)
