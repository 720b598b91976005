"""One line an event, for people or machines. Never a prompt, an answer or a key."""

import logging
import sys

import structlog


def configure_logging(log_format: str, level: str) -> None:
    """Log to stderr as `log_format` (console or json), from `level` (a standard name) up."""
    render: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            # The one that structlog takes where rich is installed, as beside vLLM, shows the values
            # of every frame, prompts too, and takes the event loop a second.
            exception_formatter=structlog.dev.plain_traceback,
        )
    )
    # Says each URL that it asks, whose signature lets whoever reads it fetch.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *([structlog.processors.format_exc_info] if log_format == "json" else []),
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
