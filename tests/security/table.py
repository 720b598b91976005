"""The rows of the table: a promise, and the tests that would fail if it were broken.

A test is named as pytest does: `path`, `path::name` with all of its parameters, or with one,
`path::name[parameter]`; of the engine's contract a parameter is the name of a clause.
The abuse corpus has a row for each way in which a peer of Penstock was abused.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Row:
    """One promise. `tests` are paths, or node ids without parameters."""

    area: str
    promise: str
    tests: tuple[str, ...]


_API: Final = "tests/inference/openai_api"
_MANAGED: Final = "tests/control_plane/management_api"
_CONTRACT: Final = "tests/gpu_workers/vllm/test_engine_contract.py"
_VALIDATED: Final = "tests/inference/adapters/validation"
_EDGES: Final = "tests/inference/test_edges.py"
_HOOKS: Final = "tests/tenants/webhooks"
_LIES: Final = "tests/control_plane/sign_on/test_lies.py"
_KEPT: Final = "tests/acceptance/test_what_is_kept_nowhere.py"
_SOCKET: Final = "tests/inference/websocket_api/test_websocket.py"
_LIMITS: Final = "tests/control_plane/test_process_limits.py"
_REDIS: Final = "tests/local_stack/test_redis_server.py"
_WORKER: Final = "tests/inference/usage/rating/test_compromised_worker.py"

_ROWS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "isolation": {
        "every page and API address, by each credential": (
            "tests/isolation/test_django_routes.py",
            "tests/isolation/test_pages.py",
        ),
        "every gateway address and websocket, by each credential": (
            "tests/isolation/test_gateway_routes.py",
        ),
        "row-level security of every table with a tenant": ("tests/tenants/isolation",),
        "roles of the dispatch Redis": ("tests/control_plane/test_redis_acl.py",),
    },
    "abuse: gateways": {
        "SQL in the place of a key": (
            f"{_API}/test_abuse.py::test_sql_is_no_key_and_is_not_repeated",
            f"{_MANAGED}/test_abuse.py",
        ),
        "Host and rewrite headers lead to no other route": (
            f"{_API}/test_abuse.py::test_no_way_of_asking_leads_past_the_key",
            f"{_EDGES}::test_spoofed_headers_change_nothing_on_the_api",
            f"{_EDGES}::test_django_refuses_a_host_that_is_not_its_own",
        ),
        "a key is remembered by all of its characters": (
            f"{_API}/test_access.py::test_a_key_with_the_right_id_and_another_secret_is_a_401",
        ),
        "settings are changed by whom a permission allows": (
            f"{_MANAGED}/test_writing.py",
            "tests/isolation/test_django_routes.py"
            "::test_the_operators_pages_send_everybody_else_to_sign_in",
        ),
        "no field of a body promotes its sender": (
            f"{_MANAGED}/test_bad_input.py"
            "::test_a_field_that_is_not_on_the_list_is_refused_by_name_and_changes_nothing",
            f"{_MANAGED}/rules/test_every_field.py",
        ),
        "a name is no template": ("tests/control_plane/dashboard/test_hostile_names.py",),
        "no caller names the server that answers": (
            f"{_API}/test_abuse.py::test_nobody_names_the_server_that_answers",
            f"{_API}/test_abuse.py::test_an_address_is_no_model",
        ),
    },
    "abuse: engines": {
        "no adapter of another answers, whatever comes and goes": (
            "tests/gpu_workers/adapters/test_worker_with_adapters.py",
            "tests/gpu_workers/adapters/test_churn_on_vllm.py",
        ),
        "prefixes are cached by adapter and by tenant": (
            f"{_CONTRACT}::test_vllm_keeps[a_prefix_is_cached_for_the_same_salt_only]",
            f"{_CONTRACT}::test_vllm_keeps[a_prefix_is_cached_for_one_adapter_only]",
            f"{_CONTRACT}::test_the_simulated_engine_keeps"
            "[a_prefix_is_cached_for_one_adapter_only]",
            f"{_API}/test_chat_completions.py::test_the_envelope_is_rebuilt_and_bounded",
        ),
        "what would harm an engine is refused by its worker": (
            f"{_CONTRACT}::test_vllm_keeps[what_would_harm_the_engine_is_refused]",
            f"{_CONTRACT}::test_vllm_keeps[more_least_tokens_than_the_bound_are_refused]",
            f"{_CONTRACT}::test_vllm_keeps[weights_that_overflow_harm_nobody_else]",
        ),
        "a caller's request id is not ours": (
            f"{_API}/test_chat_completions.py::test_a_clients_request_id_is_ignored",
            f"{_MANAGED}/test_bad_input.py::test_a_request_id_is_ours_whatever_the_caller_sends",
        ),
        "n, prompt lists, NaN, prompt_logprobs, min_tokens, templates, media, salts": (
            f"{_API}/test_bad_input.py",
        ),
        "legal extremes are taken or refused with a sentence": (f"{_API}/test_legal_extremes.py",),
        "regular expressions, grammars and JSON schemas that explode": (
            f"{_API}/test_structures.py",
            "tests/gpu_workers/vllm/test_structure_trials.py",
            f"{_CONTRACT}::test_vllm_keeps[a_bad_grammar_is_refused_before_the_engine]",
            f"{_CONTRACT}::test_vllm_keeps[structures_that_hurt_are_refused_while_others_stream]",
        ),
    },
    "abuse: adapters": {
        "archives: traversal, links, bombs": (f"{_VALIDATED}/test_hostile_archives.py",),
        "contents: rank, base, NaN, classes to import": (f"{_VALIDATED}/test_hostile_contents.py",),
        "the jail they are looked at in": (f"{_VALIDATED}/test_jail.py",),
        "written anew after validation": (f"{_VALIDATED}/test_validator.py",),
        "uploads in parts": ("tests/inference/uploads/test_hostile_uploads.py",),
    },
    "websockets": {
        "frames": (
            f"{_SOCKET}::test_a_wrong_frame_is_told_under_its_id_and_the_connection_lives",
            f"{_SOCKET}::test_a_wrong_body_ends_its_request_only",
            f"{_SOCKET}::test_an_id_in_use_is_refused_and_the_first_goes_on",
            f"{_SOCKET}::test_a_connection_has_a_limit_of_requests",
            f"{_SOCKET}::test_a_tenant_has_a_limit_of_connections",
        ),
        "origins and tickets": (
            f"{_SOCKET}::test_the_handshake_is_refused",
            f"{_SOCKET}::test_a_ticket_works_once",
            "tests/inference/websocket_api/test_session_tickets.py",
        ),
    },
    "SSRF": {
        "addresses of webhooks": (f"{_HOOKS}/test_addresses.py",),
        "redirects, proxies, rebinding between check and connection": (
            f"{_HOOKS}/test_sending.py",
        ),
        "identity providers' addresses": (
            f"{_LIES}::test_an_endpoint_in_a_private_network_is_not_connected_to",
            f"{_LIES}::test_a_redirect_is_not_followed",
            f"{_LIES}::test_loopback_is_refused_where_it_is_not_allowed",
        ),
    },
    "keys": {
        "width: every pair of caller and key": ("tests/tenants/access/widths",),
        "keys are made, changed and revoked within it": ("tests/tenants/access/test_api_keys.py",),
        "no credential in clear text": (_EDGES, "tests/control_plane/test_edge.py"),
    },
    "browsers": {
        "pages hold nothing inline or foreign": (
            "tests/control_plane/dashboard/test_content_security.py",
        ),
        "cookies, headers, passwords": (
            "tests/control_plane/accounts/test_cookies_and_passwords.py",
            f"{_API}/test_abuse.py::test_no_answer_is_guessed_at_or_read_by_another_site",
        ),
    },
    "GPU nodes": {
        "a compromised worker charges nobody": (_WORKER,),
        "what it writes stops nothing of another pool": (
            "tests/inference/operations/test_poisoned_pool.py",
        ),
        "it writes to no other pool's streams, and floods get ahead of none": (
            "tests/inference/streaming/test_untrusted_workers.py",
        ),
        "a mass death costs what has died": ("tests/inference/dispatch/nodes/test_mass_death.py",),
    },
    "availability": {
        "answers that nobody reads hold no connection, nor many files": (
            "tests/control_plane/serving/test_stalled_readers.py",
            "tests/control_plane/test_exports.py",
            f"{_MANAGED}/test_offboarding.py",
        ),
        "uploads: parts and digests hold no connection, and no web process computes one": (
            "tests/inference/uploads/test_held_connections.py",
            "tests/inference/uploads/test_digests.py",
        ),
        "bodies of strangers are not read": ("tests/control_plane/blobs/test_gate.py",),
        "a name server that does not answer holds up nobody else": (
            "tests/control_plane/test_look_ups.py",
        ),
        "no statement of a page takes longer than a minute": (
            "tests/control_plane/test_database_roles.py",
        ),
        "what rescues Redis waits for no slow task": ("tests/control_plane/test_slow_tasks.py",),
    },
    "leaks": {
        "no prompt, output or key in pages, logs, metrics, spans, PostgreSQL, both Redis": (_KEPT,),
        "log lines": (
            "tests/control_plane/test_logs.py",
            "tests/gpu_workers/test_logs.py",
            "tests/inference/lifecycle/signals/test_log_lines.py",
        ),
        "core dumps are off": (
            _LIMITS,
            "tests/control_plane/test_docker_compose.py"
            "::test_whatever_holds_prompts_or_secrets_leaves_no_core",
        ),
        "Redis keeps no arguments: no crash report, no slow log": (
            _REDIS,
            "tests/control_plane/test_docker_compose.py::test_no_redis_keeps_arguments_of_commands",
        ),
    },
}
ROWS: Final = tuple(
    Row(area=area, promise=promise, tests=tests)
    for area, promises in _ROWS.items()
    for promise, tests in promises.items()
)
