"""What an upload is refused for."""

from inference.errors import InvalidRequest, LimitReached, NotFound, Unavailable


class NoSuchUpload(NotFound):
    """Unknown, or another tenant's: the two look the same."""

    def __init__(self) -> None:
        super().__init__("There is no such upload, or it is not yours.")


class UploadNotPending(InvalidRequest):
    """It is completed, cancelled or expired, and so takes no more."""

    code = "upload_not_pending"


class UploadTooLarge(InvalidRequest):
    """More than the tier allows, a part may have, or the upload was declared to have."""

    code = "upload_too_large"


class WrongParts(InvalidRequest):
    """The parts that were named do not make the file that was declared."""

    code = "wrong_parts"


class WrongDigest(InvalidRequest):
    """The parts' bytes have another MD5 than the caller says."""

    code = "wrong_md5"


class TooManyOrders(InvalidRequest):
    """So many orders of an upload's parts were tried that no other one's MD5 is computed."""

    code = "too_many_orders"


class DigestPending(Unavailable):
    """The MD5 is being computed; whoever calls again gets it."""

    code = "md5_pending"


class DigestAway(Unavailable):
    """Nobody can be asked for an MD5 just now."""

    def __init__(self) -> None:
        super().__init__(
            "The MD5 of the parts cannot be computed just now. Try again, or complete the upload "
            "without md5.",
            retry_after_seconds=5,
        )


class StorageFull(LimitReached):
    """The tenant has as much stored, or as many uploads, as it may."""

    code = "storage_limit_reached"
