"""What Django's cache may hold: plain values in msgpack. Whoever can write to its Redis can change
them, and nothing that is read there runs."""

from typing import Any, Final

import msgspec

_PLAIN: Final = (str, bytes, bool, float, type(None), list, dict)


class PlainValues:
    """As Django's cache for Redis asks for a serializer: whole numbers stay as they are, so that
    Redis can count them."""

    def dumps(self, value: object) -> bytes | int:
        """Raises `TypeError` for what is not plain: it would come back as something else."""
        if type(value) is int:
            return value
        if not isinstance(value, _PLAIN):
            raise TypeError(f"the cache holds plain values, no {type(value).__name__}")
        return msgspec.msgpack.encode(value, enc_hook=_refuse)

    def loads(self, data: bytes) -> Any:
        """Return the value; None, as if there were none, for what an earlier version has left."""
        try:
            return int(data)
        except ValueError:
            pass
        try:
            return msgspec.msgpack.decode(data)
        except msgspec.DecodeError:
            return None


def _refuse(value: object) -> object:
    raise TypeError(f"the cache holds plain values, no {type(value).__name__}")
