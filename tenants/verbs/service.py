"""What is done to models, adapters, workers and the service itself."""

from typing import Final

from tenants.permissions import Permission
from tenants.verbs.noun import TENANT, Noun, Verb

_adapters = Noun("adapters")
_versions = Noun("adapters-versions")
_models = Noun("models")
_workers = Noun("workers")
_letters = Noun("dead-letters")
_tiers = Noun("tiers")
_policy = Noun("policy")

_ADAPTER: Final = {"name": "acme/support, or acme/support@2 for one version"}
_YES: Final = {"yes": "do not ask"}
_WORKER: Final = {"name": "the worker's name, as the fleet page shows it", "pool": "its pool"}
_LETTER: Final = {"request_id": "the request's id"}
_ROUTE: Final = "adapters/<adapter_id>"

SERVICE: Final[tuple[Verb, ...]] = (
    _adapters.read(
        "list",
        "List LoRA adapters.",
        takes={"tenant": f"{TENANT}; all without it", "archived": "those that were deleted"},
        command="adapters list",
    ),
    _adapters.read(
        "show", "Show an adapter with its versions.", takes=_ADAPTER, command="adapters show"
    ),
    _adapters(
        "create",
        "Add an adapter.",
        takes={"slug": "its name behind the tenant's", "model": "the served model that it changes"},
        permission=Permission.WRITE_ADAPTERS,
        routes="POST adapters",
    ),
    _adapters(
        "upload",
        "Upload a version of an adapter.",
        takes={
            "tenant": TENANT,
            "name": "the adapter's, with or without the tenant's slug",
            "path": "PEFT's folder, or a zip or tar of it",
        },
        permission=Permission.WRITE_ADAPTERS,
        routes=f"POST {_ROUTE}/versions",
        command="upload_adapter",
    ),
    _adapters(
        "split",
        "Point an adapter's traffic at a version, or at two.",
        takes=_ADAPTER | {"shares": "a version's number, or two with their shares in permille"},
        ends="Requests that name no version are answered by one version, or by two by weight. "
        "Gateways follow within a second; open streams stay with the version that they have.",
        permission=Permission.WRITE_ADAPTERS,
        routes=f"PATCH {_ROUTE}",
        command="adapters point",
    ),
    _adapters(
        "pin",
        "Keep an adapter's versions on every worker.",
        takes=_ADAPTER,
        permission=Permission.WRITE_ADAPTERS,
        routes=f"POST {_ROUTE}/pin",
        command="adapters pin",
    ),
    _adapters(
        "unpin",
        "Let workers forget an adapter again.",
        takes=_ADAPTER,
        permission=Permission.WRITE_ADAPTERS,
        routes=f"POST {_ROUTE}/unpin",
        command="adapters unpin",
    ),
    _adapters(
        "archive",
        "End a version for new requests.",
        takes=_ADAPTER | _YES,
        ends="Permanent. It answers no new request, and stays stored until it is deleted.",
        permission=Permission.WRITE_ADAPTERS,
        routes=f"POST {_ROUTE}/versions/<version_id>/archive",
        command="adapters archive",
    ),
    _adapters(
        "delete",
        "Delete a version, or an adapter with all of them.",
        takes=_ADAPTER | _YES,
        ends="Permanent. New requests get a 404; what is stored of its versions is deleted once no "
        "open request can need it.",
        permission=Permission.WRITE_ADAPTERS,
        routes=f"DELETE {_ROUTE}",
        command="adapters delete",
    ),
    _versions(
        "delete",
        "Delete a version once nothing needs it.",
        ends="Permanent. It answers no new request, and what is stored of it is deleted once no "
        "open request can need it.",
        permission=Permission.WRITE_ADAPTERS,
        routes=f"DELETE {_ROUTE}/versions/<version_id>",
    ),
    _models.read("list", "List the models of the catalogue.", command="list_served_models"),
    _models(
        "create",
        "Add a model to the catalogue.",
        takes={
            "name": "the name that callers use",
            "context": "its length in tokens, prompt and completion together",
        },
        ends="Its pool is created if it does not exist.",
        command="create_served_model",
    ),
    _models(
        "change",
        "Change what a model can do, and who sees it.",
        takes={"name": "the name that callers use"},
        command="change_served_model",
    ),
    _models(
        "pin",
        "Show or change what a pool serves.",
        takes={"pool": "its name"},
        ends="The next worker that registers decides. Workers that run go on until they are "
        "drained.",
        command="pin_pool",
    ),
    _models(
        "dedicate",
        "Dedicate a pool to some tenants, or open it to everybody again.",
        takes={"pool": "its name", "tenants": TENANT},
        command="dedicate_pool",
    ),
    _workers.read("list", "List workers and what each holds.", command="list_workers"),
    _workers.read(
        "show", "Show a worker as it describes itself.", takes=_WORKER, command="show_worker"
    ),
    _workers(
        "drain",
        "Have a worker finish what it holds, and exit or stay.",
        takes=_WORKER,
        ends="It takes no new requests, and finishes what it runs or hands it to other workers. It "
        "comes back when it is started on its machine.",
        command="drain_worker",
    ),
    _workers(
        "resume",
        "Have a worker that was drained to stay take requests again.",
        takes=_WORKER,
        command="resume_worker",
    ),
    _letters.read("list", "List requests whose every worker died.", command="dead_letters list"),
    _letters.read(
        "show", "Show a dead letter, never its prompt.", takes=_LETTER, command="dead_letters show"
    ),
    _letters(
        "retry",
        "Retry a dead letter.",
        takes=_LETTER,
        ends="Runs the request once more, unbilled. The response is discarded; if the retry "
        "succeeds, the stored request is deleted too. It may crash another worker.",
        command="dead_letters retry",
    ),
    _letters(
        "discard",
        "Discard a dead letter.",
        takes=_LETTER,
        ends="Deletes the request and its prompt. It cannot be retried afterwards.",
        command="dead_letters discard",
    ),
    _tiers.read("list", "List tiers.", command="list_tiers"),
    _tiers(
        "create",
        "Create a tier from a preset.",
        takes={"name": "letters, digits, - and _", "preset": "which one"},
        ends="Its numbers are edited in the admin.",
        command="create_tier",
    ),
    Noun("operators")(
        "create",
        "Create an account for the admin.",
        takes={"email": "an e-mail address"},
        command="create_operator",
    ),
    _policy(
        "rebuild",
        "Rewrite the policy snapshot in Redis.",
        ends="Writes all keys, tenants and models to Redis again, whatever is there now. Gateways "
        "see either the old snapshot or the new one, never a part of it.",
        command="rebuild_policy",
    ),
    _policy.read("redis-acl", "Print the ACL file of the dispatch Redis.", command="redis_acl"),
    Noun("").read(
        "fsck",
        "Check that all that is stored agrees: snapshot, walls, ledger, usage, audit log.",
        command="fsck",
    ),
)
