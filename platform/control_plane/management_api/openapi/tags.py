"""The tags of the document: which operations stand together, and what they are about."""

from typing import Final

# By the word of the address that names the resource: its title, and a sentence.
_TAGS: Final = {
    "chat": (
        "Inference",
        "OpenAI-compatible completions, streamed or whole, and what bounds them.",
    ),
    "session": ("Sign-in", "Sessions of people. API keys need none."),
    "me": ("Caller", "Who is asking, and what they may do where."),
    "tenants": ("Organisations", "The organisations that the caller belongs to."),
    "projects": ("Projects", "API keys, quotas and usage belong to a project."),
    "keys": ("API keys", "A key is shown once, in the answer that makes it."),
    "members": ("Members", "Who belongs to the organisation, and in which role."),
    "membership": ("Members", ""),
    "transfer": ("Members", ""),
    "sign-on": ("Single sign-on", "Its provider, its mail domains, and what sessions must prove."),
    "mail-domains": ("Single sign-on", ""),
    "invitations": ("Invitations", "People who were asked to join by e-mail."),
    "quotas": ("Quotas", "Limits of the organisation, its projects and its keys."),
    "quota-alerts": ("Quotas", ""),
    "usage": ("Usage and costs", "What was used and what it cost, by day and more."),
    "costs": ("Usage and costs", ""),
    "refusals": ("Usage and costs", ""),
    "metrics": ("Usage and costs", ""),
    "requests": ("Usage and costs", ""),
    "errors": ("Usage and costs", ""),
    "balance": ("Billing", "Credit, transactions and invoices. Amounts are nano-dollars."),
    "balance-alert": ("Billing", ""),
    "transactions": ("Billing", ""),
    "invoices": ("Billing", ""),
    "payments": ("Billing", ""),
    "tier": ("Tier and models", "What the organisation has bought, and what it may call."),
    "models": ("Tier and models", ""),
    "adapters": ("Adapters", "LoRA adapters, their versions, and which of them answer."),
    "audit": ("Audit log", "Who did what to which record, and when."),
    "export": ("Leaving", "All of the organisation's data as one file, and its end."),
    "close": ("Leaving", ""),
    "uploads": ("Uploads", "Large files in parts, as OpenAI's clients send them."),
    "webhooks": ("Webhooks", "Endpoints that are told of events, and what was sent to them."),
    "schema": ("Description", "This document."),
}

INFERENCE: Final = _TAGS["chat"][0]


def title_of(word: str) -> str:
    """Return the tag of a resource; one that nobody has described keeps its word, which a test
    finds."""
    return _TAGS[word][0] if word in _TAGS else word


def tags() -> list[dict[str, str]]:
    return [{"name": title, "description": text} for title, text in _TAGS.values() if text]
