"""Adapters and their versions as they are sent and shown."""

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from control_plane.management_api.serializers import StrictSerializer
from control_plane.records import fields
from gpu_workers.protocol.policy import WHOLE
from inference.adapters import lifecycle
from inference.adapters.intake import add_uploaded_version, waits_for_worker
from inference.adapters.pins import honoured_pins
from inference.adapters.worker_counts import LIVE, NOBODY, WorkerCounts, may_be_held, state_of
from inference.models.adapter import Adapter, AdapterState, AdapterVersion


class ShareSerializer(StrictSerializer):
    """A version's share of the requests that name none."""

    always = frozenset({"version", "permille"})

    version = fields.IntegerField(min_value=1)
    permille = fields.IntegerField(min_value=1, max_value=WHOLE)

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            self.fail("invalid", datatype=type(data).__name__)
        return super().to_internal_value(data)


class AdapterSerializer(StrictSerializer):
    """`traffic` names one version or two, 1000 together; nobody is answered while it is empty. A
    pin is honoured while the tier allows as many: those that came first are."""

    always = frozenset({"traffic"})

    object = fields.ConstantField("adapter")
    id = fields.UUIDField(read_only=True)
    name = fields.CharField(read_only=True)
    slug = fields.CharField(read_only=True)
    model = fields.CharField(source="model_id", read_only=True)
    traffic = fields.ListField(child=ShareSerializer(), source="shares", max_length=2)
    pinned_at = fields.DateTimeField(read_only=True, allow_null=True)
    is_pin_honoured = serializers.SerializerMethodField()
    created_at = fields.DateTimeField(read_only=True)
    archived_at = fields.DateTimeField(read_only=True, allow_null=True)

    def get_is_pin_honoured(self, adapter: Adapter) -> bool:
        return adapter.pinned_at is not None and adapter.pk in honoured_pins(adapter.tenant)

    def validate_traffic(self, shares: list[dict[str, int]]) -> dict[int, int]:
        traffic = {share["version"]: share["permille"] for share in shares}
        if len(traffic) != len(shares):
            raise serializers.ValidationError("Each version is named once.")
        return traffic

    def update(self, instance: Adapter, validated_data: dict[str, Any]) -> Adapter:
        return lifecycle.set_traffic_split(instance, validated_data["shares"])


class NewAdapterSerializer(AdapterSerializer):
    """`slug` follows the organisation's own in the name: `acme/<slug>`."""

    always = frozenset()

    slug = fields.CharField(max_length=100)
    model = fields.CharField(max_length=200, source="model_id")
    traffic = fields.ListField(child=ShareSerializer(), source="shares", read_only=True)

    def create(self, validated_data: dict[str, Any]) -> Adapter:
        return lifecycle.add_adapter(
            validated_data["tenant"],
            slug=validated_data["slug"],
            model=validated_data["model_id"],
        )


class VersionQuantilesSerializer(serializers.Serializer[Any]):
    """In ms; None where nothing was measured."""

    p50 = serializers.FloatField(read_only=True, allow_null=True)
    p95 = serializers.FloatField(read_only=True, allow_null=True)
    p99 = serializers.FloatField(read_only=True, allow_null=True)

    def to_representation(self, instance: tuple[float | None, ...]) -> dict[str, Any]:
        return dict(zip(("p50", "p95", "p99"), instance, strict=True))


class VersionUseSerializer(serializers.Serializer[Any]):
    object = fields.ConstantField("adapter_version.usage")
    version = fields.IntegerField(read_only=True)
    requests = fields.IntegerField(read_only=True)
    completed = fields.IntegerField(read_only=True)
    failed = fields.IntegerField(read_only=True)
    prompt_tokens = fields.IntegerField(read_only=True)
    completion_tokens = fields.IntegerField(read_only=True)
    cost_nanos = fields.IntegerField(read_only=True)
    ttft_ms = VersionQuantilesSerializer(read_only=True)
    inter_token_ms = VersionQuantilesSerializer(read_only=True)


class VersionUseQuery(StrictSerializer):
    """The last so many days, up to now."""

    days = fields.ChoiceField(["1", "7", "30", "90"], default="7")


class RefusalSerializer(serializers.Serializer[Any]):
    """Why a version answers nobody; None where nothing is wrong."""

    code = fields.CharField(source="refusal_code", read_only=True)
    message = fields.CharField(source="refusal", read_only=True)

    def to_representation(self, instance: AdapterVersion) -> Any:
        return super().to_representation(instance) if instance.refusal_code else None


class HoldersSerializer(serializers.Serializer[Any]):
    """How many workers have a version: on disk alone, in memory, in a slot of their engine. Null
    while nobody can tell."""

    disk = fields.IntegerField(read_only=True)
    memory = fields.IntegerField(read_only=True)
    slot = fields.IntegerField(read_only=True)


class AdapterVersionSerializer(serializers.Serializer[Any]):
    """`state` is `live` while workers have a version that is ready. With `waits_for_worker` it
    cannot be validated before a worker of its model has told what adapters change there."""

    object = fields.ConstantField("adapter_version")
    id = fields.UUIDField(read_only=True)
    adapter_id = fields.UUIDField(read_only=True)
    number = fields.IntegerField(read_only=True)
    state = serializers.SerializerMethodField()
    waits_for_worker = serializers.SerializerMethodField()
    workers = serializers.SerializerMethodField()
    permille = serializers.SerializerMethodField()
    rank = fields.IntegerField(read_only=True, allow_null=True)
    parameters = fields.IntegerField(read_only=True, allow_null=True)
    stored_bytes = fields.IntegerField(read_only=True)
    sha256 = fields.CharField(source="digest", read_only=True)
    warnings = serializers.ListField(child=fields.CharField(), read_only=True)
    refusal = RefusalSerializer(source="*", read_only=True, allow_null=True)
    created_at = fields.DateTimeField(read_only=True)
    ready_at = fields.DateTimeField(read_only=True, allow_null=True)
    archived_at = fields.DateTimeField(read_only=True, allow_null=True)
    delete_at = fields.DateTimeField(read_only=True, allow_null=True)

    @extend_schema_field({"type": "string", "enum": [*AdapterState.values, LIVE]})
    def get_state(self, version: AdapterVersion) -> str:
        return state_of(version, self._holders(version))

    def get_waits_for_worker(self, version: AdapterVersion) -> bool:
        return waits_for_worker(version)

    @extend_schema_field(HoldersSerializer(allow_null=True))
    def get_workers(self, version: AdapterVersion) -> Any:
        holders = self._holders(version)
        return None if holders is None else HoldersSerializer(holders).data

    def _holders(self, version: AdapterVersion) -> WorkerCounts | None:
        if not may_be_held(version):
            return NOBODY
        held: Mapping[int, WorkerCounts] | None = self.context["view"].held
        return None if held is None else held.get(version.number, NOBODY)

    def get_permille(self, version: AdapterVersion) -> int:
        permille: int = version.adapter.permille_of(version.number)
        return permille


class NewVersionSerializer(StrictSerializer):
    """`file_id` is that of a completed upload of /v1/uploads with the purpose `adapter`; it is used
    once."""

    file_id = fields.CharField(max_length=60)

    def create(self, validated_data: dict[str, Any]) -> AdapterVersion:
        return add_uploaded_version(validated_data["adapter"], validated_data["file_id"])

    def to_representation(self, instance: AdapterVersion) -> Any:
        return AdapterVersionSerializer(instance, context=self.context).data
