"""manage.py fsck"""

import json
from typing import Any

from django.core.management.base import CommandError

from tenants.fsck import check_names, run_checks
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    is_one_transaction = False
    help = "Check data consistency: policy snapshot, tenant isolation, ledger, usage, audit chain."

    def handle(self, *_: Any, **options: Any) -> None:
        findings = list(run_checks())
        if options["json"]:
            facts = {
                "checks": check_names(),
                "findings": [
                    {"check": finding.check, "problem": finding.problem} for finding in findings
                ],
            }
            self.stdout.write(json.dumps(facts))
        else:
            for finding in findings:
                self.stdout.write(f"{finding.check}: {finding.problem}")
        if findings:
            raise CommandError(f"fsck found {len(findings)} problems.")
        if not options["json"]:
            self.stdout.write(f"{len(check_names())} checks, no problem.")
