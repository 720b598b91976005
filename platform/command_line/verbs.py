"""The verbs of operators: each is a command of `manage.py`, with the first words that it takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Verb:
    """`words` begin the line that `manage.py` gets; `text` is what it does, in a line."""

    words: tuple[str, ...]
    text: str


def _of(words: str, text: str) -> Verb:
    return Verb(tuple(words.split()), text)


VERBS: Final[Mapping[str, Mapping[str, Verb]]] = {
    "adapters": {
        "list": _of("adapters list", "List LoRA adapters."),
        "show": _of("adapters show", "Show an adapter with its versions."),
        "upload": _of("upload_adapter", "Upload a version of an adapter."),
        "split": _of("adapters point", "Point an adapter's traffic at a version, or at two."),
        "pin": _of("adapters pin", "Keep an adapter's versions on every worker."),
        "unpin": _of("adapters unpin", "Let workers forget an adapter again."),
        "archive": _of("adapters archive", "End a version for new requests."),
        "delete": _of("adapters delete", "Delete a version, or an adapter with all of them."),
    },
    "audit": {"export": _of("export_audit", "Export the audit log of one tenant or all.")},
    "credit": {
        "show": _of("show_balance", "Show a tenant's balance, or its newest transactions."),
        "top-up": _of("top_up", "Record credit that a tenant has paid for."),
        "grant": _of("grant_credit", "Grant a tenant promotional credit."),
        "refund": _of("refund_credit", "Record a refund of prepaid credit."),
        "adjust": _of("adjust_balance", "Adjust what a tenant is charged, up or down."),
        "pay": _of("record_payment", "Record a payment that belongs to no invoice."),
        "write-off": _of("write_off", "Write off part of what a tenant owes."),
        "mode": _of("set_billing_mode", "Switch a tenant between prepaid and postpaid billing."),
    },
    "dead-letters": {
        "list": _of("dead_letters list", "List requests whose every worker died."),
        "show": _of("dead_letters show", "Show one, never its prompt."),
        "retry": _of("dead_letters retry", "Retry one unbilled."),
        "discard": _of("dead_letters discard", "Discard one."),
    },
    "invoices": {
        "list": _of("invoices list", "List invoices."),
        "show": _of("invoices show", "Show an invoice."),
        "draft": _of("invoices draft", "Draft a month's invoices."),
        "issue": _of("invoices issue", "Issue drafts."),
        "pay": _of("invoices pay", "Mark an invoice as paid."),
        "void": _of("invoices void", "Void an issued invoice."),
        "discard": _of("invoices discard", "Discard a draft."),
        "hold": _of("invoices hold", "Hold the SLA credit of a draft."),
        "release": _of("invoices release", "Release a held SLA credit."),
        "refuse": _of("invoices refuse", "Refuse a held SLA credit."),
        "seller": _of("set_seller", "Set the seller at the head of invoices."),
    },
    "keys": {
        "list": _of("list_api_keys", "List a tenant's API keys."),
        "create": _of("create_api_key", "Create an API key and print it once."),
        "rotate": _of("rotate_api_key", "Rotate an API key."),
        "revoke": _of("revoke_api_key", "Revoke an API key."),
    },
    "members": {
        "list": _of("list_members", "List a tenant's members."),
        "set": _of("set_member", "Add a member, or change a member's role."),
        "remove": _of("remove_member", "Remove a member; the account stays."),
    },
    "models": {
        "list": _of("list_served_models", "List the models of the catalogue."),
        "create": _of("create_served_model", "Add a model to the catalogue."),
        "change": _of("change_served_model", "Change what a model can do, and who sees it."),
        "pin": _of("pin_pool", "Show or change what a pool serves."),
        "dedicate": _of("dedicate_pool", "Keep a pool for some tenants."),
    },
    "operators": {"create": _of("create_operator", "Create an account for the admin.")},
    "policy": {
        "rebuild": _of("rebuild_policy", "Rewrite the policy snapshot in Redis."),
        "redis-acl": _of("redis_acl", "Print the ACL file of the dispatch Redis."),
    },
    "prices": {
        "list": _of("list_prices", "List prices that hold now or will."),
        "set": _of("set_price", "Set what a model costs."),
        "end": _of("end_price", "End a price without another; the model is free then."),
        "correct": _of("correct_price", "Correct the price of a past period."),
        "storage": _of("set_storage_price", "Set what tenants pay for adapters that they keep."),
        "gpu": _of("set_gpu_cost", "Set what a GPU costs an hour, for margins."),
    },
    "projects": {
        "list": _of("list_projects", "List a tenant's projects."),
        "create": _of("create_project", "Create a project."),
        "saturation": _of("set_saturation", "Choose what happens when a model is saturated."),
    },
    "quotas": {
        "list": _of("list_quotas", "List a tenant's quotas."),
        "set": _of("set_quota", "Set a quota of a tenant, a project or a key."),
        "clear": _of("clear_quota", "Remove a quota."),
    },
    "tenants": {
        "list": _of("list_tenants", "List tenants."),
        "create": _of("create_tenant", "Create a tenant with one project."),
        "suspend": _of("suspend_tenant", "Suspend a tenant; nothing is deleted."),
        "resume": _of("resume_tenant", "Resume a suspended tenant."),
        "tier": _of("set_tier", "Move a tenant to another tier."),
        "export": _of("export_tenant", "Export all data of a tenant."),
        "close": _of("close_tenant", "Close a tenant for good."),
    },
    "tiers": {
        "list": _of("list_tiers", "List tiers."),
        "create": _of("create_tier", "Create a tier from a preset."),
    },
    "usage": {
        "margins": _of("show_margins", "Show what pools, models or tenants earned and cost."),
        "rerate": _of("rerate", "Post what usage should have cost."),
        "rebuild-sums": _of("rebuild_usage_sums", "Sum up usage by pool again."),
        "quarantine": _of("usage_quarantine list", "List usage that could not be recorded."),
        "retry": _of("usage_quarantine retry", "Record it again."),
        "discard": _of("usage_quarantine discard", "Discard it for good."),
    },
    "webhooks": {
        "list": _of("webhooks list", "List a tenant's webhooks."),
        "log": _of("webhooks log", "Show the newest deliveries to one."),
        "test": _of("webhooks test", "Send a test event."),
        "redeliver": _of("webhooks redeliver", "Send again what one missed."),
    },
    "workers": {
        "list": _of("list_workers", "List workers and what each holds."),
        "drain": _of("drain_worker", "Let a worker finish what it holds, and exit."),
    },
}
# Without a noun.
FSCK: Final = _of("fsck", "Check that all that is stored agrees.")
