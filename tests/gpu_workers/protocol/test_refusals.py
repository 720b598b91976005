"""The bytes of what gateways tell of refusals, byte by byte, as older and newer peers have them."""

from gpu_workers.protocol import codec
from gpu_workers.protocol.refusals import RefusalBatch, RefusalCount, RefusalNotice

REFUSALS = RefusalBatch(
    process_id="0199f2a4-c0de-7000-8000-00000000beef",
    number=3,
    counts=[
        RefusalCount(
            tenant_id="tenant-acme",
            hour=488888,
            project_id="project-1",
            api_key_id="key-1",
            model="sim",
            code="rate_limit_exceeded",
            limit="requests_per_minute",
            scope="key",
            count=2,
        )
    ],
    notices=[
        RefusalNotice(
            tenant_id="tenant-acme",
            at_ms=1760000000000,
            request_id="0199f2a4c0de7000800000000000beef",
            project_id="project-1",
            api_key_id="key-1",
            model="sim",
            code="rate_limit_exceeded",
            limit="requests_per_minute",
            scope="key",
            status=429,
            message="Enough.",
        )
    ],
)
GOLDEN = (
    "95af7265667573616c2d62617463682d31d92430313939663261342d633064652d373030302d383030302d30"
    "303030303030306265656603919aaa7265667573616c732d31ab74656e616e742d61636d65ce000775b8a970"
    "726f6a6563742d31a56b65792d31a373696db3726174655f6c696d69745f6578636565646564b37265717565"
    "7374735f7065725f6d696e757465a36b657902919ca97265667573616c2d31ab74656e616e742d61636d65cf"
    "00000199c82cc000d9203031393966326134633064653730303038303030303030303030303062656566a970"
    "726f6a6563742d31a56b65792d31a373696db3726174655f6c696d69745f6578636565646564b37265717565"
    "7374735f7065725f6d696e757465a36b6579cd01ada7456e6f7567682e"
)


def test_the_bytes_of_a_batch_never_change() -> None:
    assert codec.encode(REFUSALS).hex() == GOLDEN


def test_a_batch_comes_back_as_it_was_sent() -> None:
    assert codec.decode_refusal_batch(codec.encode(REFUSALS)) == REFUSALS
