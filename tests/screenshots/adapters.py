"""Adapters as an organisation has them: one with a canary and what went wrong, others beside it."""

from dataclasses import dataclass

from redis import Redis

from gpu_workers.protocol import keys
from inference.adapters.lifecycle import add_adapter, archive_version, set_traffic_split
from inference.adapters.versions import begin_validation, mark_refused
from inference.models import Adapter, AdapterVersion
from tenants.models import Tenant
from tests.support.adapters.records import a_ready_version, an_upload
from tests.support.servers import servers

_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """`ready` and `refused` are versions of `support`."""

    support: Adapter
    ready: AdapterVersion
    refused: AdapterVersion


def have_adapters(acme: Tenant) -> Adapters:
    """Write them to the database and the dispatch Redis; within an operator's scope."""
    support = add_adapter(acme, slug="support", model="llama-3.1-8b")
    old = a_ready_version(support, rank=8, stored_bytes=21 * _MEBIBYTE)
    ready = a_ready_version(support, rank=16, parameters=20_971_520, stored_bytes=42 * _MEBIBYTE)
    odd = a_ready_version(
        support,
        rank=16,
        stored_bytes=42 * _MEBIBYTE,
        warnings=["no_effect"],
    )
    set_traffic_split(support, {ready.number: 900, odd.number: 100})
    archive_version(old)
    refused = mark_refused(
        begin_validation(an_upload(support, 44 * _MEBIBYTE)),
        "shape",
        "model.layers.0.self_attn.q_proj.lora_A has the shape 16 x 5120, and 16 x 4096 was "
        "expected: is it of another base model?",
    )
    begin_validation(an_upload(support, 42 * _MEBIBYTE))
    a_ready_version(add_adapter(acme, slug="contracts-and-clauses", model="llama-3.1-70b"))
    add_adapter(acme, slug="summaries", model="llama-3.1-8b")
    with Redis.from_url(servers().dispatch_redis.url) as redis:
        key = keys.pool_adapter_workers("llama-3.1-8b", ready.opaque_name)
        redis.zadd(key, {"worker-1": 3, "worker-2": 2})
    return Adapters(support=Adapter.objects.get(pk=support.pk), ready=ready, refused=refused)
