"""What has to be so after each drill: on record, in the store, on the disks."""

from datetime import timedelta
from pathlib import Path

from asgiref.sync import sync_to_async

from tests.chaos.adapters.stack import AdapterStack
from tests.chaos.load import TOKENS, Answer
from tests.chaos.money_drill import fsck
from tests.chaos.processes import until
from tests.chaos.report import Report
from tests.chaos.stack import Record
from tests.support.blobs.s3_server import CREDENTIALS

FSCK_SECONDS = 60.0


async def compare(
    stack: AdapterStack, answers: list[Answer], drill: str, report: Report, *, tokens: int = TOKENS
) -> dict[str, Record]:
    """Every answer against its record, then fsck and the store. Return the records."""
    begun = {each.request_id: each for each in answers if each.request_id and each.status == 200}
    records = await stack.records(begun)
    found = [(each, records[one]) for one, each in begun.items() if one in records]
    report.add(drill, "requests without a record", len(begun) - len(found), most=0)
    others = [
        each for each, record in found if each.adapter != version_of(record) and each.is_complete
    ]
    what = "records of another version than the header said"
    report.add(drill, what, len(others), most=0)
    wrong = [
        each for each, record in found if each.is_complete and record.completion_tokens != tokens
    ]
    report.add(drill, "whole answers billed as something else", len(wrong), most=0)
    await check_everything(stack, drill, report)
    return records


async def check_everything(stack: AdapterStack, drill: str, report: Report) -> None:
    """fsck as an operator runs it, the store after a sweep, and what processes left behind."""
    findings: list[str] = []

    async def is_clean() -> bool:
        findings[:] = await fsck(stack)
        return not findings

    try:
        report.add(drill, "until fsck finds nothing", await until(is_clean, FSCK_SECONDS), "s")
    except TimeoutError:
        for finding in findings[:20]:
            print(f"    {finding}", flush=True)
    report.add(drill, "what fsck finds", len(findings), most=0)
    orphans, half = await _orphans_after_sweep(stack.store.url)
    report.add(drill, "orphan blobs after a sweep", orphans, most=0)
    report.add(drill, "half-written blobs after a sweep", half, most=0)
    left = stack.left_by_validators()
    for path in left[:20]:
        print(f"    {path}", flush=True)
    report.add(drill, "files left in the temporary folder", len(left), most=0)


def version_of(record: Record) -> str:
    return f"{record.adapter}@{record.adapter_version}" if record.adapter else ""


@sync_to_async
def _orphans_after_sweep(url: str) -> tuple[int, int]:
    """Sweep as an hour later, then look as three hours later: how many blobs are nobody's, or not
    there, and how many files of a folder are half of one."""
    from django.test import override_settings
    from django.utils import timezone

    from inference.blobs.opening import open_store
    from inference.blobs.sweep import GRACE, blob_problems, sweep_blobs
    from tenants.isolation.scoping import operator_scope

    options = CREDENTIALS if url.startswith("s3:") else {}
    store = open_store(url, base=Path("/"), public_url="", secrets=("s",), **options)
    now = timezone.now() + GRACE + timedelta(minutes=1)
    with operator_scope("chaos drills"), override_settings(PENSTOCK_BLOB_STORE_URL=url):
        sweep_blobs(store, now)
        problems = list(blob_problems(store, now + 2 * GRACE))
    for problem in problems[:20]:
        print(f"    {problem}", flush=True)
    half = list(Path(url.removeprefix("file:")).rglob("*#*")) if url.startswith("file:") else []
    return len(problems), len(half)
