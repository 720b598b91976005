"""ETag, If-Match and If-None-Match (RFC 9110) of single records. A tag is strong, and of what this
caller is shown: who may see more, or something else, gets another."""

import hashlib
from typing import Any

from django.utils.http import parse_etags
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from control_plane.management_api.errors import PreconditionFailed

_READING = frozenset({"GET", "HEAD"})


def etag_of(shown: Any) -> str:
    """Return the entity tag of a record as it is shown, quotes included."""
    return f'"{hashlib.sha256(JSONRenderer().render(shown)).hexdigest()[:32]}"'


def has_preconditions(request: Request) -> bool:
    return "HTTP_IF_MATCH" in request.META or "HTTP_IF_NONE_MATCH" in request.META


def check_preconditions(request: Request, etag: str) -> bool:
    """Return whether a reader has the record already, and may be told 304. Raises
    `PreconditionFailed`; a header that holds no entity tag matches nothing."""
    if_match = request.META.get("HTTP_IF_MATCH")
    if if_match is not None and not _names(parse_etags(if_match), etag):
        raise PreconditionFailed(etag)
    if_none_match = request.META.get("HTTP_IF_NONE_MATCH")
    if if_none_match is None:
        return False
    # Weak tags will do: what is compared is whether to send it again.
    known = [tag.removeprefix("W/") for tag in parse_etags(if_none_match)]
    is_known = _names(known, etag)
    if is_known and request.method not in _READING:
        raise PreconditionFailed(etag)
    return is_known


def _names(tags: list[str], etag: str) -> bool:
    return tags == ["*"] or etag in tags
