"""The bytes of the wire are a promise to processes of another version: these are committed."""

import pytest
from msgspec import structs

from gpu_workers.protocol import codec
from gpu_workers.protocol.adapters import AdapterBase, AdapterPins, AdapterSource, BaseModule
from gpu_workers.protocol.codec import WireFormatError
from gpu_workers.protocol.messages import (
    Api,
    Assignment,
    Cancellation,
    Confirmation,
    Delta,
    Drain,
    Envelope,
    FrameBatch,
    Message,
    Outcome,
    Preemption,
    Prefetch,
    Resend,
    Terminal,
    TextDelta,
    TokenUsage,
    WireError,
    WorkerInfo,
    WorkerState,
)
from gpu_workers.protocol.policy import (
    AdapterPolicy,
    AdapterVersionPolicy,
    ApiKeyPolicy,
    Caller,
    KeyDigest,
    Limit,
    LimitName,
    ModelPolicy,
    Scope,
    TenantPolicy,
    TierPolicy,
)
from gpu_workers.protocol.usage import EngineTokenCounter, UsageEntry, WasteEntry

REQUEST_ID = "0199f2a4c0de7000800000000000beef"
USAGE = TokenUsage(prompt_tokens=12, cached_tokens=4, completion_tokens=3)

ENVELOPE = Envelope(
    request_id=REQUEST_ID,
    tenant_id="tenant-acme",
    project_id="project-1",
    api_key_id="key-1",
    tier="standard",
    gateway_id="gateway-1",
    pool="sim",
    model="sim",
    api=Api.CHAT_COMPLETIONS,
    stream=True,
    body=b'{"messages":[]}',
    max_output_tokens=256,
    priority=-2,
    cache_salt="c2FsdA",
    arrived_at_ms=1760000000000,
    ttft_target_ms=500,
    max_wait_ms=5_000,
)
DELTA = Delta(
    request_id=REQUEST_ID,
    attempt=1,
    seq=0,
    chunks=[b"{}"],
    completion_tokens=3,
    token_ids=[1, 300, 70000],
)
TERMINAL = Terminal(
    request_id=REQUEST_ID,
    attempt=1,
    seq=1,
    outcome=Outcome.FAILED,
    usage=USAGE,
    error=WireError(status=502, message="gone", type="server_error", code="engine_failed"),
)
TEXTS = FrameBatch(
    worker_id="w#1",
    frames=[
        TextDelta(
            request_id=REQUEST_ID,
            attempt=1,
            seq=2,
            text=" wörd",
            completion_tokens=3,
            token_ids=[300],
            form=(b"{", b"}"),
        ),
        TextDelta(
            request_id=REQUEST_ID, attempt=1, seq=3, text="s", completion_tokens=4, token_ids=[7]
        ),
    ],
    number=5,
)
FRAMES = FrameBatch(worker_id="w#1", frames=[DELTA, TERMINAL])
WORKER = WorkerInfo(
    worker_id="w#1",
    name="w",
    pool="sim",
    model="sim",
    engine="sim",
    engine_version="1",
    state=WorkerState.READY,
    slots=64,
    context_tokens=2048,
    kv_cache_tokens=131072,
    template_overhead_tokens=8,
    max_token_bytes=10,
    running=1,
    waiting_in_engine=0,
    started_at_ms=1760000000000,
    host="node-1",
    pid=42,
    metrics_url="http://127.0.0.1:9400/metrics",
)
ENTRY = UsageEntry(
    request_id=REQUEST_ID,
    tenant_id="tenant-acme",
    project_id="project-1",
    api_key_id="key-1",
    tier="standard",
    pool="sim",
    model="sim",
    api=Api.COMPLETIONS,
    stream=False,
    attempt=1,
    worker_id="w#1",
    outcome=Outcome.COMPLETED,
    finish_reason="stop",
    error_code=None,
    usage=USAGE,
    arrived_at_ms=1760000000000,
    finished_at_ms=1760000000400,
    queue_ms=3,
    ttft_ms=41,
)
WASTE = WasteEntry(
    request_id=REQUEST_ID,
    attempt=1,
    tenant_id="tenant-acme",
    project_id="project-1",
    api_key_id="key-1",
    tier="standard",
    pool="sim",
    model="sim",
    adapter="",
    worker_id="w#1",
    completion_tokens=2,
    reason="worker_lost",
    ended_at_ms=1760000000400,
    generated_tokens=6,
)
ENGINE_COUNTER = EngineTokenCounter(
    pool="sim",
    worker_id="w#1",
    generated_tokens=70_000,
    unbilled_tokens=3,
    started_at_ms=1760000000000,
    at_ms=1760000000400,
    is_final=True,
)
TIER = TierPolicy(
    name="standard",
    priority=0,
    weight=4,
    ttft_target_ms=1000,
    max_queue_seconds=30,
    requests_per_minute=60,
    max_concurrent_requests=8,
    default_max_output_tokens=512,
    max_output_tokens=2048,
)
API_KEY = ApiKeyPolicy(
    key_id="alice00000000001",
    digests=[KeyDigest(digest=b"\x00" * 4)],
    tenant_id="tenant-acme",
    project_id="project-1",
    scopes=[Scope.INFERENCE],
    networks=["10.0.0.0/8"],
    limits=[Limit(name=LimitName.SPEND_PER_MONTH, value=10**10, is_hard=False)],
)
TENANT = TenantPolicy(tenant_id="tenant-acme", name="Acme", tier=TIER)
CALLER = Caller(public_key_id="alice", key=API_KEY, tenant=TENANT, proofs=[b"\x00"])
MODEL = ModelPolicy(
    name="sim",
    pool="sim",
    context_tokens=2048,
    created_at=1760000000,
    owned_by="penstock",
    tenant_ids=["tenant-acme"],
)
ADAPTER = "ab" * 32
ADAPTER_POLICY = AdapterPolicy(
    name="acme/support",
    tenant_id="tenant-acme",
    model="sim",
    created_at=1760000000,
    versions=[AdapterVersionPolicy(number=3, adapter=ADAPTER, permille=1000)],
)
SOURCE = AdapterSource(
    adapter=ADAPTER,
    url="https://store.example/a",
    size_bytes=1000,
    sha256=b"d" * 32,
    key=b"k" * 32,
    expires_at_ms=1760000000000,
)
PINS = AdapterPins(places={ADAPTER: 1})
BASE = AdapterBase(
    model="sim",
    digest="cd",
    max_rank=16,
    modules=[BaseModule(name="layers.0.q_proj", in_features=64, out_features=96, norm=1.5)],
)

GOLDEN: list[tuple[Message, str]] = [
    (
        ENVELOPE,
        "dc0027a9726571756573742d32d92030313939663261346330646537303030383030303030303030303030626565"
        "66ab74656e616e742d61636d65a970726f6a6563742d31a56b65792d31a87374616e64617264a967617465776179"
        "2d31a373696da373696db0636861742e636f6d706c6574696f6e73c3c40f7b226d65737361676573223a5b5d7dcd"
        "0100fea6633246736441cf00000199c82cc000cd01f4cd1388c001ab696e7465726163746976650000a477616974"
        "c2a090c394000000cd03e801c2c2a00000a080c2c400",
    ),
    (
        FRAMES,
        "95a86672616d65732d31a37723319299a164d9203031393966326134633064653730303038303030303030303030"
        "303062656566010091c4027b7d039301cd012cce0001117000009aa174d920303139396632613463306465373030"
        "30383030303030303030303030626565660101a66661696c6564940c040300c0c099cd01f6a4676f6e65ac736572"
        "7665725f6572726f72ad656e67696e655f6661696c6564c0c0c0c0c0c20090",
    ),
    (
        TEXTS,
        "95a86672616d65732d31a37723319298a178d92030313939663261346330646537303030383030303030303030"
        "303030626565660102a62077c3b672640391cd012c92c4017bc4017d98a178d920303139396632613463306465"
        "37303030383030303030303030303030626565660103a173049107c00590",
    ),
    (
        WORKER,
        "dc001ea8776f726b65722d32a3772331a177a373696da373696da373696da131a5726561647940cd0800ce000200"
        "00080a0100cf00000199c82cc000a66e6f64652d312abd687474703a2f2f3132372e302e302e313a393430302f6d"
        "6574726963730090c3a00090a0c0c0a0c2",
    ),
    (
        ENTRY,
        "dc0023a775736167652d31d9203031393966326134633064653730303038303030303030303030303062656566ab"
        "74656e616e742d61636d65a970726f6a6563742d31a56b65792d31a87374616e64617264a373696da373696dab63"
        "6f6d706c6574696f6e73c201a3772331a9636f6d706c65746564a473746f70c0940c040300cf00000199c82cc000"
        "cf00000199c82cc1900329c3ab696e746572616374697665a094000000cd03e8c0c000a0c000800000c2c400",
    ),
    (
        WASTE,
        "dc0012a777617374652d31d920303139396632613463306465373030303830303030303030303030306265656601"
        "ab74656e616e742d61636d65a970726f6a6563742d31a56b65792d31a87374616e64617264a373696da373696da0"
        "a377233102ab776f726b65725f6c6f7374cf00000199c82cc190068000c400",
    ),
    (
        ENGINE_COUNTER,
        "98a774616c6c792d31a373696da3772331ce0001117003cf00000199c82cc000cf00000199c82cc190c3",
    ),
    (
        API_KEY,
        "dc0013a56b65792d32b0616c69636530303030303030303030319192c40400000000c0ab74656e616e742d61636d65a9"
        "70726f6a6563742d3191a9696e666572656e6365c091aa31302e302e302e302f38c0c09193af7370656e645f7065"
        "725f6d6f6e7468cf00000002540be400c2a090c0a477616974a0c390a0",
    ),
    (
        TENANT,
        "97a874656e616e742d31ab74656e616e742d61636d65a441636d65dc0010a87374616e646172640004cd03e81e3c08cd"
        "0200cd0800c0c0cd03e8ab696e7465726163746976650000c090c0a0",
    ),
    (
        MODEL,
        "9aa76d6f64656c2d32a373696da373696dcd0800ce68e77800a870656e73746f636b91ab74656e616e742d61636d"
        "659090c2",
    ),
    (
        ADAPTER_POLICY,
        "96a9616461707465722d31ac61636d652f737570706f7274ab74656e616e742d61636d65a373696dce68e7780091"
        "9303d940616261626162616261626162616261626162616261626162616261626162616261626162616261626162"
        "61626162616261626162616261626162616261626162cd03e8",
    ),
    (
        SOURCE,
        "98a8736f757263652d32d94061626162616261626162616261626162616261626162616261626162616261626162"
        "616261626162616261626162616261626162616261626162616261626162b768747470733a2f2f73746f72652e65"
        "78616d706c652f61cd03e8c4206464646464646464646464646464646464646464646464646464646464646464c4"
        "206b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6bcf00000199c82cc000c2",
    ),
    (
        PINS,
        "92a670696e732d3181d9406162616261626162616261626162616261626162616261626162616261626162616261"
        "626162616261626162616261626162616261626162616261626162616201",
    ),
    (
        BASE,
        "95a6626173652d31a373696da26364109194af6c61796572732e302e715f70726f6a4060cb3ff8000000000000",
    ),
]


@pytest.mark.parametrize(("message", "golden"), GOLDEN, ids=lambda value: type(value).__name__)
def test_the_bytes_of_a_message_never_change(message: Message, golden: str) -> None:
    assert codec.encode(message).hex() == golden


def test_every_message_comes_back_as_it_was_sent() -> None:
    assert codec.decode_envelope(codec.encode(ENVELOPE)) == ENVELOPE
    assert codec.decode_frames(codec.encode(FRAMES)) == FRAMES
    assert codec.decode_frames(codec.encode(TEXTS)) == TEXTS
    assert codec.decode_worker_info(codec.encode(WORKER)) == WORKER
    assert codec.decode_usage_entry(codec.encode(ENTRY)) == ENTRY
    for entry in (ENTRY, WASTE, ENGINE_COUNTER):
        assert codec.decode_usage(codec.encode(entry)) == entry
    assert codec.decode_api_key(codec.encode(API_KEY)) == API_KEY
    assert codec.decode_model(codec.encode(MODEL)) == MODEL
    assert codec.decode_tenant(codec.encode(TENANT)) == TENANT
    assert codec.decode_caller(codec.encode(CALLER)) == CALLER


def test_a_message_without_the_fields_that_were_appended_last_is_understood() -> None:
    appended = len("a477616974c2a090c394000000cd03e801c2c2a00000a080c2c400")
    envelope = codec.encode(ENVELOPE).hex()[6:-appended]
    assert codec.decode_envelope(bytes.fromhex("dc0017" + envelope)) == ENVELOPE
    waste = b"\x9e" + codec.encode(WASTE)[3 : -len("068000c400") // 2]
    assert codec.decode_usage(waste) == structs.replace(WASTE, generated_tokens=None)
    source = b"\x97" + codec.encode(SOURCE)[1:-1]
    assert codec.decode_adapter_source(source) == SOURCE
    worker = b"\xdc\x00\x19" + codec.encode(WORKER)[3 : -len("a0c0c0a0c2") // 2]
    assert codec.decode_worker_info(worker) == WORKER
    tenant = codec.encode(TENANT).hex().replace("dc0010a8", "9fa8").replace("c090c0a0", "90c0a0")
    assert codec.decode_tenant(bytes.fromhex(tenant)) == TENANT
    frames = b"\x93" + codec.encode(FRAMES)[1 : -len("0090") // 2]
    assert codec.decode_frames(frames) == FRAMES


def test_a_field_that_a_newer_version_appends_is_ignored() -> None:
    longer = b"\xdc\x00\x28" + codec.encode(ENVELOPE)[3:] + b"\xc0"
    assert codec.decode_envelope(longer) == ENVELOPE


def test_the_end_of_an_envelope_that_is_owed_takes_the_place_of_the_other() -> None:
    proof, owed_proof = b"a" * 32, b"b" * 32
    end = codec.owed_end(owed_proof)
    data = codec.encode(structs.replace(ENVELOPE, proof=proof))
    owed = structs.replace(ENVELOPE, owed=True, proof=owed_proof)
    assert codec.decode_envelope(data[: -len(end)] + end) == owed


def test_an_inbox_message_says_what_to_do_with_a_request_or_an_adapter() -> None:
    envelope = b"line one\nline two"
    assert codec.decode_inbox(b"assign r1 2\n" + envelope) == Assignment(
        request_id="r1", attempt=2, envelope=envelope
    )
    assert codec.decode_inbox(b"cancel r1 2\n") == Cancellation(request_id="r1", attempt=2)
    assert codec.decode_inbox(b"preempt r1 2\n") == Preemption(request_id="r1", attempt=2)
    assert codec.decode_inbox(b"prefetch abab\n") == Prefetch(adapter="abab")
    assert codec.decode_inbox(b"drain\n") == Drain()


def test_gateways_write_demands_for_frames_and_confirmations() -> None:
    demand = Resend(request_id="r1", attempt=2, from_seq=3, gateway_id="gateway-1")
    assert codec.encode_resend(demand) == b"resend r1 2 3\ngateway-1"
    assert codec.decode_inbox(b"resend r1 2 3\ngateway-1") == demand
    of_an_earlier_version = Resend(request_id="r1", attempt=2, from_seq=3)
    assert codec.decode_inbox(b"resend r1 2 3\n") == of_an_earlier_version
    confirmation = Confirmation(gateway_id="gateway-1", number=70_000)
    assert codec.encode_confirmation(confirmation) == b"confirm gateway-1 70000\n"
    assert codec.decode_inbox(b"confirm gateway-1 70000\n") == confirmation


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"assign r1\nx",
        b"assign r1 2\n",
        b"assign r1 two\nx",
        b"cancel r1 -1\n",
        b"sing r1 1\n",
        b"confirm gateway-1 many\n",
    ],
)
def test_damage_in_the_inbox_is_an_error_of_the_wire(damaged: bytes) -> None:
    with pytest.raises(WireFormatError):
        codec.decode_inbox(damaged)


@pytest.mark.parametrize("damaged", [b"", b"\xff", b"\x93\xa8frames-1", codec.encode(ENTRY)])
def test_bytes_of_another_message_are_an_error_of_the_wire(damaged: bytes) -> None:
    with pytest.raises(WireFormatError):
        codec.decode_frames(damaged)
    with pytest.raises(WireFormatError):
        codec.decode_envelope(damaged)
