"""manage.py dead_letters list | show | retry | discard"""

import asyncio
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from redis import Redis

from inference.errors import Unavailable
from inference.operations import dead_letters
from inference.operations.dead_letters import Letter
from inference.usage.collector import dispatch_redis
from inference.usage.rating.admitted import deployment_prover
from tenants.management.reporting import Fact, ReportingCommand

_NEEDS_ID = ("show", "retry", "discard")


class Command(ReportingCommand):
    is_one_transaction = False
    help = (
        "Requests of the last day whose every worker died: list them, show one (never "
        "its prompt), retry it unbilled and report how it ends, or discard it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("action", choices=["list", *_NEEDS_ID])
        parser.add_argument("request_id", nargs="?", help="request id, for show, retry and discard")

    def handle(self, *_: Any, **options: Any) -> None:
        action, request_id = options["action"], options["request_id"]
        if (action in _NEEDS_ID) != bool(request_id):
            wanted = "takes the id of a request" if action in _NEEDS_ID else "takes no id"
            raise CommandError(f"dead_letters {action} {wanted}; `dead_letters list` shows them.")
        with dispatch_redis() as redis:
            if action == "list":
                letters = dead_letters.kept_letters(redis)
                self.report_rows(options, [_row(letter) for letter in letters], of="dead letters")
                return
            letter = _letter(redis, request_id)
            if action == "show":
                self.report(options, **_facts(letter))
            elif action == "discard":
                self.report(options, discarded=dead_letters.discard(redis, letter))
            else:
                self._retry(redis, letter, options)

    def _retry(self, redis: Redis, letter: Letter, options: dict[str, Any]) -> None:
        url = settings.PENSTOCK_DISPATCH_REDIS_URL
        try:
            end = asyncio.run(dead_letters.run_again(url, letter, deployment_prover()))
        except Unavailable as error:
            raise CommandError(error.message) from None
        is_well = end.error is None
        self.report(
            options,
            outcome=end.outcome.value,
            finish_reason=end.finish_reason,
            error_code=end.error.code if end.error else None,
            attempt=end.attempt,
            prompt_tokens=end.usage.prompt_tokens,
            completion_tokens=end.usage.completion_tokens,
            discarded=is_well and dead_letters.discard(redis, letter),
        )


def _letter(redis: Redis, request_id: str) -> Letter:
    letter = dead_letters.letter_of(redis, request_id)
    if letter is not None:
        return letter
    raise CommandError(
        f"No dead letter {request_id!r}; they are kept for a day, see `dead_letters list`."
    )


def _row(letter: Letter) -> dict[str, Fact]:
    return {
        "request_id": letter.request_id,
        "died_at": letter.died_at,
        "pool": letter.pool,
        "model": letter.record.model,
        "tenant_id": letter.record.tenant_id,
        "attempts": letter.record.attempt,
    }


def _facts(letter: Letter) -> dict[str, Fact]:
    record, envelope = letter.record, letter.envelope
    return {
        **_row(letter),
        "project_id": record.project_id,
        "api_key_id": record.api_key_id,
        "tier": record.tier,
        "api": record.api.value,
        "stream": record.stream,
        "error_code": record.error_code,
        "last_worker_id": record.worker_id,
        "prompt_tokens": record.usage.prompt_tokens,
        "completion_tokens": record.usage.completion_tokens,
        "max_output_tokens": envelope.max_output_tokens,
        "body_bytes": len(envelope.body),
    }
