"""Parts of a JSON text as they were written: numbers keep every digit, nothing is re-encoded."""

from json import JSONDecoder
from typing import Final, NoReturn

_SPACE: Final = " \t\n\r"


class JsonMalformedError(ValueError):
    """The text is not the JSON object that was expected; the message says where and why."""


def members(text: str) -> dict[str, str]:
    """Return the exact text of each member of a JSON object; JsonMalformedError otherwise."""
    try:
        found, end = _object(text, _skip(text, 0))
    except RecursionError:
        raise JsonMalformedError("it is nested too deeply") from None
    except (ValueError, IndexError) as error:
        raise JsonMalformedError(str(error) or "it ends too early") from None
    if _skip(text, end) != len(text):
        raise JsonMalformedError(f"something follows the object at character {end}")
    return found


def _object(text: str, start: int) -> tuple[dict[str, str], int]:
    """Read the members of the object at `start`; return them and where it ends."""
    found: dict[str, str] = {}
    position = _expected(text, start, "{")
    if text[position] == "}":
        return found, position + 1
    while True:
        key, position = _DECODER.raw_decode(text, _quote(text, position))
        value_start = _expected(text, _skip(text, position), ":")
        _, end = _DECODER.raw_decode(text, value_start)
        if key in found:
            raise ValueError(f"the key {key[:64]!r} occurs twice")
        found[key] = text[value_start:end]
        position = _skip(text, end)
        if text[position] == "}":
            return found, position + 1
        position = _expected(text, position, ",")


def _quote(text: str, position: int) -> int:
    if text[position] != '"':
        raise ValueError(f"a key is expected at character {position}")
    return position


def _expected(text: str, position: int, sign: str) -> int:
    """Return where the next token begins after the sign."""
    if text[position] != sign:
        raise ValueError(f"{sign!r} is expected at character {position}")
    return _skip(text, position + 1)


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


# Numbers are only looked at, never converted: they may have more digits than Python converts.
_DECODER: Final = JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant)
