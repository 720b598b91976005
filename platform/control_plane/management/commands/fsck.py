"""manage.py fsck"""

import json
import time
from typing import Any

import structlog
from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from redis.exceptions import RedisError

from control_plane.status.background import background_redis, note_fsck
from tenants.fsck import check_names, run_checks
from tenants.management.reporting import ReportingCommand

_log = structlog.get_logger(__name__)


class Command(ReportingCommand):
    is_one_transaction = False

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--whole",
            action="store_true",
            help="verify ledger and audit log from their beginnings, not from the last checkpoint",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        findings, begun = [], time.monotonic()
        for finding in run_checks(whole=options["whole"]):
            findings.append(finding)
            if not options["json"]:
                # At once: there may be hours to go.
                self.stdout.write(f"{finding.check}: {finding.problem}")
                self.stdout.flush()
        _note(len(findings), time.monotonic() - begun)
        if options["json"]:
            facts = {
                "checks": check_names(),
                "findings": [
                    {"check": finding.check, "problem": finding.problem} for finding in findings
                ],
            }
            self.stdout.write(json.dumps(facts))
        if findings:
            raise CommandError(f"fsck found {len(findings)} problems.")
        if not options["json"]:
            self.stdout.write(f"{len(check_names())} checks, no problem.")


def _note(problems: int, seconds: float) -> None:
    """Leave the result to the operators' dashboard; without that Redis fsck says it here alone."""
    try:
        with background_redis(settings.PENSTOCK_REDIS_URL) as redis:
            note_fsck(redis, problems, seconds)
    except (RedisError, OSError) as error:
        _log.warning("fsck_result_not_noted", reason=type(error).__name__)
