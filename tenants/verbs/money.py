"""What is done about money: credit, prices, invoices, usage that was priced."""

from typing import Final

from tenants.verbs.noun import TENANT, Noun, Verb

_credit = Noun("credit")
_prices = Noun("prices")
_invoices = Noun("invoices")
_usage = Noun("usage")

_BOOKED: Final = {
    "tenant": TENANT,
    "amount": "in dollars: $250, 0.05 or $2k",
    "reference": "such as the payment's number; the same one again books nothing",
    "memo": "stored permanently; do not include personal data",
}
_OF_MODEL: Final = {
    "model": "the name that callers use",
    "tier": "only for this tier",
    "adapter": "only for this adapter",
}
_PER_MILLION: Final = "in dollars for a million tokens"
_PRICED: Final = {
    **_OF_MODEL,
    "prompt": _PER_MILLION,
    "completion": _PER_MILLION,
    "cached": f"{_PER_MILLION}; the prompt's price without it",
}
_DAYS: Final = {"first": "the first day (UTC)", "last": "the last day (UTC), included"}
_INVOICE: Final = {"invoice": "its number or id"}
_DRAFTS: Final = {"month": "such as 2030-01", "tenant": f"{TENANT}; all without it"}
_ENTRIES: Final = {"id": "the ids of entries"}
_REASON: Final = _INVOICE | {"reason": "stored permanently; do not include personal data"}

MONEY: Final[tuple[Verb, ...]] = (
    _credit.read(
        "show",
        "Show a tenant's balance, or its newest transactions.",
        takes={"tenant": TENANT},
        command="show_balance",
    ),
    _credit(
        "top-up",
        "Record credit that a tenant has paid for.",
        takes=_BOOKED,
        ends="It becomes prepaid credit.",
        command="top_up",
    ),
    _credit(
        "grant",
        "Grant a tenant promotional credit.",
        takes=_BOOKED | {"expires": "such as 30d, or a date; never without it"},
        ends="A gift, spent before prepaid credit.",
        command="grant_credit",
    ),
    _credit(
        "refund",
        "Record a refund of prepaid credit.",
        takes=_BOOKED,
        ends="What open requests have reserved stays.",
        command="refund_credit",
    ),
    _credit(
        "adjust",
        "Adjust what a tenant is charged, up or down.",
        takes=_BOOKED,
        ends="The memo says why.",
        command="adjust_balance",
    ),
    _credit(
        "pay",
        "Record a payment that belongs to no invoice.",
        takes=_BOOKED,
        ends="It pays what is owed, and the rest becomes credit. A payment of an invoice is marked "
        "on the invoice.",
        command="record_payment",
    ),
    _credit(
        "write-off",
        "Write off part of what a tenant owes.",
        takes=_BOOKED,
        ends="The memo says why.",
        command="write_off",
    ),
    _credit(
        "mode",
        "Switch a tenant between prepaid and postpaid billing.",
        takes={"tenant": TENANT, "mode": "prepaid or postpaid"},
        ends="What pays for usage from now on.",
        command="set_billing_mode",
    ),
    _prices.read(
        "list",
        "List prices that hold now or will, in micro-dollars per million tokens.",
        command="list_prices",
    ),
    _prices("set", "Set what a model costs.", takes=_PRICED, command="set_price"),
    _prices(
        "end",
        "End a price without another.",
        takes=_OF_MODEL | {"at": "a date or time (UTC); now without it"},
        ends="Where no other price holds, the model is free from then on.",
        command="end_price",
    ),
    _prices(
        "correct",
        "Correct the price of a past period.",
        takes=_PRICED
        | {
            "begin": "a date or time (UTC)",
            "until": "a date or time (UTC)",
            "reason": "stored permanently; do not include personal data",
        },
        ends="What was posted stays; re-rating posts the difference.",
        command="correct_price",
    ),
    _prices(
        "storage",
        "Set what tenants pay for adapters that they keep.",
        takes={"per_gib_month": "in dollars for a GiB and month; 0 charges nothing"},
        command="set_storage_price",
    ),
    _prices(
        "gpu",
        "Set what a GPU of a pool costs, for margins.",
        takes={"pool": "its name", "per_gpu_hour": "in dollars", "gpus_per_worker": "how many"},
        command="set_gpu_cost",
    ),
    _invoices.read(
        "list",
        "List invoices.",
        takes=_DRAFTS | {"state": "only those in it"},
        command="invoices list",
    ),
    _invoices.read(
        "show",
        "Show an invoice.",
        takes=_INVOICE
        | dict.fromkeys(("pdf", "csv"), "write it to this file, which must not exist yet"),
        command="invoices show",
    ),
    _invoices(
        "draft",
        "Draft a month's invoices.",
        takes=_DRAFTS | {"month": "such as 2030-01; last month without it"},
        command="invoices draft",
    ),
    _invoices(
        "issue",
        "Issue a draft, or all of a month or a tenant.",
        takes=_INVOICE | _DRAFTS,
        ends="An invoice gets its number, and its amount becomes due. It cannot be changed "
        "afterwards.",
        command="invoices issue",
    ),
    _invoices(
        "pay",
        "Mark an invoice as paid.",
        takes=_INVOICE | {"reference": "the payment's reference at the bank"},
        command="invoices pay",
    ),
    _invoices(
        "void",
        "Void an issued invoice.",
        takes=_REASON,
        ends="The invoice keeps its number and is no longer due. Its month can be invoiced again.",
        command="invoices void",
    ),
    _invoices(
        "discard",
        "Discard a draft.",
        takes=_INVOICE,
        ends="A draft has no number yet, so discarding it leaves no gap.",
        command="invoices discard",
    ),
    _invoices(
        "hold",
        "Hold the SLA credit of a draft.",
        takes=_REASON,
        command="invoices hold",
    ),
    _invoices(
        "release",
        "Release a held SLA credit.",
        takes=_REASON,
        command="invoices release",
    ),
    _invoices(
        "refuse",
        "Refuse a held SLA credit.",
        takes=_REASON,
        ends="The SLA credit is taken off the draft, which can then be issued without it.",
        command="invoices refuse",
    ),
    _invoices(
        "seller",
        "Set the seller at the head of invoices.",
        takes={"name": "the seller's"},
        command="set_seller",
    ),
    Noun("payments")(
        "resolve",
        "Close what a payment provider told and nobody could match.",
        takes={"note": "what was done about it"},
        ends="First make the books right: mark the invoice as paid, void it, or post an "
        "adjustment.",
    ),
    _usage.read(
        "margins",
        "Show what pools, models or tenants earned and cost.",
        takes=_DAYS,
        command="show_margins",
    ),
    _usage(
        "rerate",
        "Post what usage should have cost.",
        takes=_DAYS | {"tenant": TENANT},
        ends="What usage of these days should have cost by the price book and its corrections as "
        "they stand now. The difference is posted once; nothing that was posted changes.",
        command="rerate",
    ),
    _usage("rebuild-sums", "Sum up usage by pool again.", command="rebuild_usage_sums"),
    _usage.read(
        "quarantine", "List usage that could not be recorded.", command="usage_quarantine list"
    ),
    _usage(
        "retry",
        "Record quarantined usage again.",
        takes={"id": "the ids of entries; all without it"},
        command="usage_quarantine retry",
    ),
    _usage(
        "discard", "Discard quarantined usage.", takes=_ENTRIES, command="usage_quarantine discard"
    ),
)
