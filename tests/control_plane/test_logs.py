import io
import json
import logging
import logging.config

import pytest
import structlog
from control_plane.logs import hide_api_keys, logging_config

from tenants import key_format


def test_the_secret_of_a_key_is_cut_off() -> None:
    key = key_format.generate()
    event = hide_api_keys(None, "info", {"event": f"caller sent {key}!", "count": 3})
    assert event == {"event": f"caller sent pk-{key.split('-')[1]}-…!", "count": 3}


@pytest.mark.parametrize("source", ["structlog", "logging"])
def test_an_event_is_one_json_line_whoever_logs_it(source: str) -> None:
    key = key_format.generate()
    config = logging_config("json", "INFO")
    formatter_config = config["formatters"]["event"]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=formatter_config["foreign_pre_chain"],
        processors=formatter_config["processors"],
    )
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger = logging.getLogger(f"tests.logs.{source}")
    logger.addHandler(handler)
    logger.setLevel("INFO")
    logger.propagate = False
    if source == "structlog":
        structlog.get_logger(logger.name).info("key seen", key=key)
    else:
        logger.info("key seen %s", key)
    line = json.loads(stream.getvalue())
    assert line["level"] == "info"
    assert line["event"].startswith("key seen")
    assert key not in stream.getvalue()


@pytest.mark.parametrize(
    "path",
    [
        "/account/invitation/{}/",
        "/account/signup/{}/",
        "/account/email/confirm/{}/",
        "/account/password/reset/key/{}/",
    ],
)
def test_the_link_of_an_e_mail_that_was_refused_is_not_in_the_log(path: str) -> None:
    formatter_config = logging_config("json", "INFO")["formatters"]["event"]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=formatter_config["foreign_pre_chain"],
        processors=formatter_config["processors"],
    )
    secret = "1a-LEbWuHc8Qaypg:dVJ17DVBjb1"
    told = ("Bad Request: %s", (path.format(secret),))
    record = logging.LogRecord("django.request", logging.WARNING, "", 0, *told, None)
    line = formatter.format(record)
    assert "Bad Request: " + path.format("…") in json.loads(line)["event"]
    assert secret not in line
