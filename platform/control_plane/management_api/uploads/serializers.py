"""Uploads as OpenAI shows them. What the official client does not know of comes beside."""

import re
from collections.abc import Mapping
from typing import Any, Final

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from control_plane.management_api.serializers import StrictSerializer
from control_plane.records import fields
from inference.errors import InvalidRequest
from inference.models import Upload, UploadPart
from inference.models.upload import (
    MAX_FILENAME_CHARACTERS,
    MAX_MIME_TYPE_CHARACTERS,
    UploadPurpose,
    UploadStatus,
)
from inference.uploads.bounds import MAX_PARTS

_MOST_BYTES: Final = 2**53 - 1
# No name of a file: a path, or something that a terminal or a header would read as its own.
_NO_FILENAME: Final = re.compile(r"[/\\\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_MIME_TYPE: Final = re.compile(r"[\x20-\x7e]+")
_MD5: Final = re.compile(r"[0-9a-fA-F]{32}")


class NewUploadSerializer(StrictSerializer):
    bytes = fields.IntegerField(min_value=1, max_value=_MOST_BYTES)
    filename = fields.CharField(max_length=MAX_FILENAME_CHARACTERS)
    mime_type = fields.CharField(max_length=MAX_MIME_TYPE_CHARACTERS)
    purpose = fields.ChoiceField(UploadPurpose.values)

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        if "expires_after" in data:
            raise InvalidRequest(
                "'expires_after' is not supported: a file is kept until it is used, or for a day.",
                param="expires_after",
                code="unsupported_field",
            )
        return super().to_internal_value(data)

    def validate_filename(self, name: str) -> str:
        if name in {".", ".."} or _NO_FILENAME.search(name):
            raise serializers.ValidationError("expected the name of a file, without its folder.")
        return name

    def validate_mime_type(self, text: str) -> str:
        if not _MIME_TYPE.fullmatch(text):
            raise serializers.ValidationError("expected a MIME type, such as application/zip.")
        return text


class CompleteUploadSerializer(StrictSerializer):
    part_ids = fields.ListField(
        child=fields.CharField(max_length=80), min_length=1, max_length=MAX_PARTS
    )
    md5 = fields.CharField(max_length=32, required=False, allow_null=True)

    def validate_md5(self, digest: str | None) -> str | None:
        if digest is not None and not _MD5.fullmatch(digest):
            raise serializers.ValidationError("expected 32 hexadecimal digits.")
        return digest


class _Timed(serializers.Serializer[Any]):
    created_at = serializers.SerializerMethodField()

    def get_created_at(self, row: Upload | UploadPart) -> int:
        return int(row.created_at.timestamp())


class PartSerializer(_Timed):
    id = serializers.SerializerMethodField()
    object = fields.ConstantField("upload.part")
    upload_id = serializers.SerializerMethodField()
    bytes = fields.IntegerField(source="size_bytes", read_only=True)
    md5 = fields.CharField(read_only=True)

    def get_id(self, part: UploadPart) -> str:
        return str(part)

    def get_upload_id(self, part: UploadPart) -> str:
        return f"upload_{part.upload_id.hex}"


class FileSerializer(_Timed):
    """OpenAI's file object, of a completed upload."""

    id = fields.CharField(source="file_id", read_only=True)
    object = fields.ConstantField("file")
    bytes = fields.IntegerField(source="size_bytes", read_only=True)
    expires_at = serializers.SerializerMethodField()
    filename = fields.CharField(read_only=True)
    purpose = fields.CharField(read_only=True)
    status = fields.ConstantField("uploaded")

    def get_expires_at(self, upload: Upload) -> int | None:
        """Return None for a file that is in use."""
        return None if upload.taken_at else int(upload.expires_at.timestamp())


class UploadSerializer(_Timed):
    id = serializers.SerializerMethodField()
    object = fields.ConstantField("upload")
    bytes = fields.IntegerField(source="size_bytes", read_only=True)
    expires_at = serializers.SerializerMethodField()
    filename = fields.CharField(read_only=True)
    purpose = fields.CharField(read_only=True)
    status = serializers.SerializerMethodField()
    file = serializers.SerializerMethodField()

    def get_id(self, upload: Upload) -> str:
        return str(upload)

    def get_expires_at(self, upload: Upload) -> int:
        return int(upload.expires_at.timestamp())

    @extend_schema_field(serializers.ChoiceField(UploadStatus.values))
    def get_status(self, upload: Upload) -> str:
        is_late = upload.status == UploadStatus.PENDING and upload.has_ended()
        return UploadStatus.EXPIRED.value if is_late else upload.status

    @extend_schema_field(FileSerializer(allow_null=True))
    def get_file(self, upload: Upload) -> dict[str, Any] | None:
        if upload.status != UploadStatus.COMPLETED:
            return None
        return dict(FileSerializer(upload).data)


class OneUploadSerializer(UploadSerializer):
    """With the parts that have come, so that an upload that was cut goes on."""

    parts = PartSerializer(many=True, read_only=True)
