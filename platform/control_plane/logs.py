"""One log line an event, through structlog, for our own loggers and everybody else's."""

import re
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from tenants import key_format

_KEY_TAIL = re.compile(rf"({key_format.PREFIX}-[a-z0-9]{{16}})-[a-z2-7]{{8,}}[0-9a-f]*", re.ASCII)
# What Django says of a refused page names its path, and the links of e-mails are keys to accounts.
_LINK = re.compile(r"(/account/(?:invitation|signup|email/confirm|password/reset/key)/)[^/\s]+")


def logging_config(log_format: str, log_level: str) -> dict[str, Any]:
    """Return a mapping for `logging.config.dictConfig`; `log_format` is `console` or `json`."""
    renderer: Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        )
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "event": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": _shared_processors(),
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.format_exc_info,
                    hide_api_keys,
                    hide_links,
                    renderer,
                ],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "event"}},
        "root": {"handlers": ["stderr"], "level": log_level},
        "loggers": {
            # A line per request is the proxy's work; ours are events that somebody acts on.
            "uvicorn.access": {"level": "WARNING"},
            "django.server": {"level": "WARNING"},
            # Every task of every few seconds, three times over.
            "celery.beat": {"level": "WARNING"},
            "celery.worker.strategy": {"level": "WARNING"},
            "celery.app.trace": {"level": "WARNING"},
        },
    }


def configure_structlog() -> None:
    """Send structlog's events through the standard library's handlers; safe to call twice."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared_processors(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def hide_api_keys(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Cut the secret off every API key in an event: the public id is enough to find it."""
    for name, value in event.items():
        if isinstance(value, str) and f"{key_format.PREFIX}-" in value:
            event[name] = _KEY_TAIL.sub(r"\1-…", value)
    return event


def hide_links(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Cut the token off every link that an e-mail held."""
    for name, value in event.items():
        if isinstance(value, str) and "/account/" in value:
            event[name] = _LINK.sub(r"\1…", value)
    return event


def _shared_processors() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
