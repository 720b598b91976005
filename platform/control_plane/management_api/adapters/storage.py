"""What an organisation keeps in the store of blobs, as reports show it."""

from typing import Any

from rest_framework import serializers

from control_plane.records import fields


class KeptSerializer(serializers.Serializer[Any]):
    """How many there are, and bytes: those in the store, sealed; those that count against the
    tier's bound, with what is on its way; the bound, null for all tenants together."""

    count = fields.IntegerField(read_only=True)
    stored_bytes = fields.IntegerField(read_only=True)
    counted_bytes = fields.IntegerField(read_only=True)
    max_bytes = fields.IntegerField(read_only=True, allow_null=True)


class StorageSerializer(serializers.Serializer[Any]):
    """Adapters in service with all their versions; uploads that take parts or wait for use."""

    adapters = KeptSerializer(read_only=True)
    uploads = KeptSerializer(read_only=True)
