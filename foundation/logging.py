"""Structured logs: JSON lines or a console, ids from context, and secrets taken out.

Our own events and those of libraries that use the standard library's logging come out in
one shape. Tracebacks never show local variables.
"""

import logging
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

REDACTED: Final = "[redacted]"
_DEPTH_MAX = 8

# Keys whose value is a secret whatever it looks like; ids, hashes and counts of one are not.
_SECRET_KEY = re.compile(
    r"(?i)(secret|password|passwd|token|credential|authorization|api_?key|private_?key|"
    r"signature|cookie)s?$"
)
_KEYS_ALLOWED: Final = frozenset({"page_token", "next_page_token"})
_REPLACEMENTS: Final[Sequence[tuple[re.Pattern[str], str]]] = (
    # Presigned URLs: the whole query goes, since its parts are only valid together.
    (
        re.compile(
            r"(?i)\?[^\s\"'<>]*(?:x-amz-|x-goog-|signature=|sig=|awsaccesskeyid=)[^\s\"'<>]*"
        ),
        f"?{REDACTED}",
    ),
    (re.compile(r"\b(tdp_(?:key|join|node)_)[A-Za-z0-9_-]+"), rf"\1{REDACTED}"),
    (re.compile(r"\b(whsec_)[A-Za-z0-9+/=]+"), rf"\1{REDACTED}"),
    (re.compile(r"(?i)\b(bearer\s+)[^\s\"',;]+"), rf"\1{REDACTED}"),
    (re.compile(r"\bv1([=,])(?:[0-9a-f]{64}|[A-Za-z0-9+/]{43}=)"), rf"v1\1{REDACTED}"),
    (re.compile(r"(://[^/\s:@]*:)[^@/\s]+@"), rf"\1{REDACTED}@"),
    (re.compile(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END|\Z)"), REDACTED),
)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Shape (`json` or `console`), least severity, and the process's name in every line."""

    process: str
    format: str = "json"
    level: str = "info"


def configure_logging(config: LogConfig, stream: TextIO | None = None) -> None:
    """Set up all logging of the process, to `stream` (standard error by default); once.

    Raises ValueError for an unknown format or level.
    """
    level = _level_number(config.level)
    renderer = _renderer(config.format)
    shared = _shared_processors(config.process)
    sink = stream if stream is not None else sys.stderr
    structlog.configure(
        processors=[*shared, *_ending(renderer)],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sink),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sink)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_ending(renderer),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)


def bound_log_ids(**ids: str) -> AbstractContextManager[object]:
    """Add ids (`order_id`, `task_id`, `attempt_id`, …) to every line logged inside the block.

    They follow the context into tasks that are started inside.
    """
    return structlog.contextvars.bound_contextvars(**ids)


def redact(text: str) -> str:
    """Return the text without tokens, signatures, passwords and presigned query strings.

    Also to be used on error texts that are stored or shown.
    """
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return text


def redact_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Take secrets out of an event's keys and values, nested ones and tracebacks included."""
    return {key: _redacted_entry(key, value, 0) for key, value in event.items()}


def _redacted_entry(key: object, value: object, depth: int) -> object:
    if isinstance(key, str) and key not in _KEYS_ALLOWED and _SECRET_KEY.search(key):
        return REDACTED
    return _redacted(value, depth)


def _redacted(value: object, depth: int) -> object:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return redact(value)
        case Mapping() if depth < _DEPTH_MAX:
            return {
                redact(str(key)): _redacted_entry(key, item, depth + 1)
                for key, item in value.items()
            }
        case list() | tuple() | set() | frozenset() if depth < _DEPTH_MAX:
            return [_redacted(item, depth + 1) for item in value]
        case _:
            # Rendered here and not later, or an object's repr would go out as it is.
            return redact(str(value))


def _shared_processors(process: str) -> list[Processor]:
    def add_process(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["process"] = process
        return event

    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_process,
    ]


def _ending(renderer: Processor) -> list[Processor]:
    # format_exc_info makes a traceback text, without locals, before the redaction.
    return [structlog.processors.format_exc_info, redact_event, renderer]


def _renderer(form: str) -> Processor:
    match form:
        case "json":
            return structlog.processors.JSONRenderer(sort_keys=True, ensure_ascii=False)
        case "console":
            return structlog.dev.ConsoleRenderer(
                colors=False, exception_formatter=structlog.dev.plain_traceback
            )
        case _:
            raise ValueError(f"log format {form!r} is not known: use json or console")


def _level_number(level: str) -> int:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"log level {level!r} is not known: use debug, info, warning or error")
    return number
