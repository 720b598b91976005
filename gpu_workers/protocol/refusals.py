"""What gateways tell the control plane of requests that they refused."""

from typing import Final

from gpu_workers.protocol.messages import Message

# How many of a tenant keep their sentence.
NEWEST: Final = 100
# A model that the caller named and cannot call, and what stands for the rest of a tenant.
UNKNOWN_MODEL: Final = "(unknown)"
OTHER_MODELS: Final = "(other)"


class RefusalCount(Message, frozen=True, tag="refusals-1"):
    """So many refusals of one hour (Unix hours, UTC) that have all of these in common. `limit` and
    `scope` name the limit, where one refused; project and key are empty of the rest of a tenant
    that was too varied to be counted one by one."""

    tenant_id: str
    hour: int
    project_id: str
    api_key_id: str
    model: str
    code: str
    limit: str
    scope: str
    count: int


class RefusalNotice(Message, frozen=True, tag="refusal-1"):
    """One refusal as its caller was told, without what it quoted of the request. `request_id` is
    empty where the request had none."""

    tenant_id: str
    at_ms: int
    request_id: str
    project_id: str
    api_key_id: str
    model: str
    code: str
    limit: str
    scope: str
    status: int
    message: str


class RefusalBatch(Message, frozen=True, tag="refusal-batch-1"):
    """What one gateway process gathered. It sends `number` n + 1 only once Redis has n, and n again
    where it cannot know: whoever has added n has added all up to it."""

    process_id: str
    number: int
    counts: list[RefusalCount]
    notices: list[RefusalNotice]
