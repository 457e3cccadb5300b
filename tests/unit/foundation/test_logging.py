"""Logs: one shape for all, ids from context, and no secret in keys, values or tracebacks."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from foundation.logging import LogConfig, bound_log_ids, configure_logging, redact
from foundation.secrets import TokenKind, new_token
from foundation.signatures import SigningSecret, delivery_headers

URL = (
    "https://s3.example/bucket/key?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AK%2F1"
    "&X-Amz-Signature=0123456789abcdef"
)


@pytest.fixture(name="sink")
def _sink() -> Iterator[io.StringIO]:
    """Log as JSON into memory, and put the old set-up back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    sink = io.StringIO()
    configure_logging(LogConfig("test-process"), sink)
    yield sink
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def lines(sink: io.StringIO) -> list[dict[str, Any]]:
    """Return the logged lines."""
    return [json.loads(line) for line in sink.getvalue().splitlines()]


def test_events_are_json_with_time_level_and_process(sink: io.StringIO) -> None:
    """A line carries its event, fields, level, UTC time and the process's name."""
    structlog.get_logger().info("order_created", count=3, text="界")
    (line,) = lines(sink)
    assert line["timestamp"].endswith("Z")
    del line["timestamp"]
    assert line == {
        "event": "order_created",
        "count": 3,
        "text": "界",
        "level": "info",
        "process": "test-process",
    }


def test_libraries_come_out_in_the_same_shape(sink: io.StringIO) -> None:
    """A line of the standard library's logging has the same fields, and its logger's name."""
    logging.getLogger("some.library").warning("token=%s", new_token(TokenKind.API_KEY))
    (line,) = lines(sink)
    assert line["event"] == "token=tdp_key_[redacted]"
    assert (line["level"], line["logger"]) == ("warning", "some.library")
    assert line["process"] == "test-process"


def test_ids_follow_the_context(sink: io.StringIO) -> None:
    """Ids bound around a block are in each of its lines and in none after it."""
    with bound_log_ids(task_id="t-1", attempt_id="a-1"):
        structlog.get_logger().info("inside")
    structlog.get_logger().info("outside")
    inside, outside = lines(sink)
    assert (inside["task_id"], inside["attempt_id"]) == ("t-1", "a-1")
    assert "task_id" not in outside


def test_less_severe_lines_are_dropped(sink: io.StringIO) -> None:
    """Below the level nothing is written, by us or by libraries."""
    structlog.get_logger().debug("quiet")
    logging.getLogger("x").debug("quiet")
    assert not lines(sink)


@pytest.mark.parametrize(
    "key",
    ["password", "callback_secret", "token", "Authorization", "api_key", "credential", "cookies"],
)
def test_secret_keys_lose_their_value(sink: io.StringIO, key: str) -> None:
    """Whatever a key that names a secret holds is taken out, nested as well."""
    structlog.get_logger().info("e", **{key: "hunter2"}, nested={"list": [{key: "hunter2"}]})
    assert "hunter2" not in sink.getvalue()


def test_ids_and_hashes_of_secrets_stay(sink: io.StringIO) -> None:
    """What identifies a secret without being one is kept."""
    structlog.get_logger().info("e", token_id="t-1", key_hash="h", page_token="p", tokens_used="x")
    (line,) = lines(sink)
    assert (line["token_id"], line["key_hash"]) == ("t-1", "h")
    assert (line["page_token"], line["tokens_used"]) == ("p", "x")


def test_secret_texts_are_found_anywhere() -> None:
    """Tokens, signing secrets, signatures, presigned queries and passwords in a text are cut."""
    secret = SigningSecret.generate()
    headers = delivery_headers(b"x", secret, event_id="e", at_s=1)
    for kind in TokenKind:
        token = new_token(kind)
        assert token[len(kind) :] not in redact(f"refused {token}, sorry")
    assert secret.text not in redact(secret.text)
    mac = headers["tdp-signature"].partition("v1=")[2]
    assert mac not in redact(f"tdp-signature: {headers['tdp-signature']}")
    standard = headers["webhook-signature"]
    assert standard[3:] not in redact(f"webhook-signature: {standard}")
    assert "abc.def" not in redact("Authorization: Bearer abc.def")
    assert redact("postgres://user:pw1@host/db") == "postgres://user:[redacted]@host/db"
    assert redact(f"GET {URL} failed") == "GET https://s3.example/bucket/key?[redacted] failed"
    assert "MII" not in redact("-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----")


@pytest.mark.parametrize(
    "text",
    ["https://h/p?page=2&size=10", "a ratio of 3:4@home", "user@example.org", "v1=2", "t=1 bearer"],
)
def test_harmless_texts_are_left_alone(text: str) -> None:
    """An ordinary query, address or word is not touched."""
    assert redact(text) == text


def fail() -> None:
    """Raise, with secrets in the texts of the error and its cause, and a local variable."""
    hidden = "local-value"
    assert hidden
    raise ConnectionError(f"cannot reach {URL}") from OSError("postgres://u:pw1@h/d")


def test_tracebacks_show_neither_secrets_nor_locals(sink: io.StringIO) -> None:
    """An exception is logged with its traceback, without local variables or secret texts."""
    try:
        fail()
    except ConnectionError:
        structlog.get_logger().exception("failed", url=URL)
        logging.getLogger("x").exception("failed %s", URL)
    text = sink.getvalue()
    assert "ConnectionError" in text
    assert "Traceback" in text
    for hidden in ("X-Amz-Signature", "pw1", "local-value"):
        assert hidden not in text


def test_objects_are_redacted_by_their_text(sink: io.StringIO) -> None:
    """An object's own text is searched as well, and odd values don't break the line."""

    class Grant:
        def __str__(self) -> str:
            return URL

    structlog.get_logger().info("e", grant=Grant(), raw=b"x", pair=(1, URL), none=None)
    (line,) = lines(sink)
    assert "Signature" not in sink.getvalue()
    assert line["pair"][0] == 1


def test_the_console_redacts_too() -> None:
    """The console shape has the same protection, and plain tracebacks."""
    sink = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    configure_logging(LogConfig("p", format="console", level="debug"), sink)
    try:
        fail()
    except ConnectionError:
        structlog.get_logger().exception("failed", password="hunter2")
    finally:
        root.handlers, root.level = handlers, level
        structlog.reset_defaults()
    text = sink.getvalue()
    assert "failed" in text
    assert "Traceback" in text
    for secret in ("X-Amz", "hunter2", "local-value"):
        assert secret not in text


def test_unknown_formats_and_levels_are_refused() -> None:
    """A misspelt format or level is named."""
    with pytest.raises(ValueError, match="xml"):
        configure_logging(LogConfig("p", format="xml"))
    with pytest.raises(ValueError, match="loud"):
        configure_logging(LogConfig("p", level="loud"))
