"""Single sign-on of a tenant: its provider, its mail domains, and what sessions have to prove. The
client's secret is taken and never shown."""

from typing import Any, ClassVar

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.management_api.serializers import Nothing, StrictSerializer
from control_plane.management_api.viewsets import TenantScopedViewSet
from control_plane.records import fields
from control_plane.records.filters import MailDomainFilter
from tenants.access.sign_on.configuration import (
    MAX_SECRET_CHARACTERS,
    configuration_of,
    configure,
    demand,
    remove_configuration,
    unreachable_issuer,
)
from tenants.access.sign_on.domains import (
    DOMAINS_ORDER,
    add_domain,
    remove_domain,
    texts_at,
    verify_domain,
)
from tenants.errors import Conflict
from tenants.models import MailDomain, Tenant
from tenants.permissions import Permission, Role

_OF_THE_PROVIDER = (
    "issuer",
    "client_id",
    "client_secret",
    "role_claim",
    "roles",
    "default_role",
)


class RolesField(serializers.DictField):
    """Values of the claim, each with its role."""

    child = fields.ChoiceField(list(Role))


class SignOnSerializer(StrictSerializer):
    """Fields of the provider are null while there is none. Shows a `Tenant`."""

    nulls = frozenset({"issuer", "client_id"})

    object = fields.ConstantField("sign_on")
    issuer = fields.CharField(max_length=500, required=False)
    client_id = fields.CharField(max_length=255, required=False)
    client_secret = fields.CharField(
        max_length=MAX_SECRET_CHARACTERS, required=False, write_only=True
    )
    role_claim = fields.NullableCharField(max_length=100, required=False)
    roles = RolesField(required=False)
    default_role = fields.ChoiceField(list(Role), allow_null=True, required=False)
    demands_sign_on = fields.BooleanField(required=False)
    demands_second_factor = fields.BooleanField(required=False)
    sign_on_url = fields.CharField(read_only=True)
    redirect_uri = fields.CharField(read_only=True)
    created_at = fields.DateTimeField(read_only=True, allow_null=True)

    def to_representation(self, instance: Tenant) -> dict[str, Any]:
        provider = configuration_of(instance)
        address = f"{settings.PENSTOCK_PUBLIC_URL}/sso/{instance.pk}/"
        moment = None if provider is None else provider.created_at
        return {
            "object": "sign_on",
            "issuer": None if provider is None else provider.issuer,
            "client_id": None if provider is None else provider.client_id,
            "role_claim": None if provider is None else provider.role_claim or None,
            "roles": {} if provider is None else provider.roles,
            "default_role": None if provider is None else provider.default_role or None,
            "demands_sign_on": instance.demands_sign_on,
            "demands_second_factor": instance.demands_second_factor,
            "sign_on_url": address,
            "redirect_uri": f"{address}callback",
            "created_at": self.fields["created_at"].to_representation(moment) if moment else None,
        }

    def update(self, instance: Tenant, validated_data: dict[str, Any]) -> Tenant:
        provider = {
            name: validated_data[name] for name in _OF_THE_PROVIDER if name in validated_data
        }
        if provider:
            configure(
                instance,
                unreachable=validated_data.get("unreachable"),
                **{name: "" if value is None else value for name, value in provider.items()},
            )
        if validated_data.keys() & {"demands_sign_on", "demands_second_factor"}:
            demand(
                instance,
                sign_on=validated_data.get("demands_sign_on"),
                second_factor=validated_data.get("demands_second_factor"),
            )
        return instance


class SignOnViewSet(
    mixins.RetrieveModelMixin,
    mixins.UpdateModelMixin,
    mixins.DestroyModelMixin,
    TenantScopedViewSet,
):
    summaries: ClassVar = {
        "retrieve": "Show single sign-on",
        "partial_update": "Set up single sign-on",
        "destroy": "Remove the provider of single sign-on",
    }
    permission_map: ClassVar = {
        "retrieve": Permission.VIEW_PEOPLE,
        "partial_update": Permission.WRITE_SIGN_ON,
        "destroy": Permission.WRITE_SIGN_ON,
    }
    serializer_class = SignOnSerializer
    unreachable: ValidationError | None = None

    def before_walls(self) -> None:
        """Look up where a new issuer leads."""
        if self.action == "partial_update":
            sent = self.get_serializer(data=self.request.data, partial=True)
            if sent.is_valid() and sent.validated_data.get("issuer"):
                self.unreachable = unreachable_issuer(self.tenant_id, sent.validated_data["issuer"])

    def perform_update(self, serializer: serializers.BaseSerializer[Any]) -> None:
        serializer.save(unreachable=self.unreachable)

    def get_object(self) -> Tenant:
        if self.action != "retrieve":
            self.locked(Tenant.objects.filter(id=self.tenant_id)).get()
        self.check_seen(self.tenant)
        return self.tenant

    def perform_destroy(self, instance: Tenant) -> None:
        """Forget the provider; the tenant stays."""
        remove_configuration(instance)


class MailDomainSerializer(StrictSerializer):
    """`record_name` and `record_value` are those of the TXT record that proves it."""

    object = fields.ConstantField("mail_domain")
    id = fields.UUIDField(read_only=True)
    domain = fields.CharField(max_length=260)
    record_type = fields.ConstantField("TXT")
    record_name = fields.CharField(read_only=True)
    record_value = fields.CharField(read_only=True)
    proven_at = fields.DateTimeField(read_only=True, allow_null=True)
    proven_by = fields.NullableCharField(read_only=True)
    created_at = fields.DateTimeField(read_only=True)

    def create(self, validated_data: dict[str, Any]) -> MailDomain:
        return add_domain(**validated_data)


class MailDomainViewSet(
    mixins.ListModelMixin,
    mixins.CreateModelMixin,
    mixins.RetrieveModelMixin,
    mixins.DestroyModelMixin,
    TenantScopedViewSet,
):
    summaries: ClassVar = {
        "list": "List mail domains",
        "create": "Add a mail domain",
        "retrieve": "Show a mail domain",
        "destroy": "Remove a mail domain",
        "verify": "Look for the record that proves a mail domain",
    }
    permission_map: ClassVar = {
        "list": Permission.VIEW_PEOPLE,
        "create": Permission.WRITE_SIGN_ON,
        "retrieve": Permission.VIEW_PEOPLE,
        "destroy": Permission.WRITE_SIGN_ON,
        "verify": Permission.WRITE_SIGN_ON,
    }
    serializer_class = MailDomainSerializer
    filterset_class = MailDomainFilter
    order = DOMAINS_ORDER
    lookup_url_kwarg = "mail_domain_id"
    texts: list[str] | Conflict

    def before_walls(self) -> None:
        """Look up the records of a domain that is to be verified."""
        if self.action == "verify":
            self.texts = texts_at(self.tenant_id, self.kwargs["mail_domain_id"])

    def get_queryset(self) -> QuerySet[MailDomain]:
        return MailDomain.objects.all()

    def perform_create(self, serializer: serializers.BaseSerializer[Any]) -> None:
        serializer.save(tenant=self.tenant)

    def perform_destroy(self, instance: MailDomain) -> None:
        remove_domain(instance)

    @extend_schema(responses=MailDomainSerializer)
    @action(detail=True, methods=["post"], serializer_class=Nothing)
    def verify(self, _request: Request, **_ids: Any) -> Response:
        domain = self.get_object()
        self.body()
        return Response(MailDomainSerializer(verify_domain(domain, self.texts)).data)
