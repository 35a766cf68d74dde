"""Fields of a message that the other side has sent: each getter raises ProtocolError for what is not there or not so."""

from __future__ import annotations

from typing import Any

from .errors import RequestFailed, raise_protocol, request_failed

Json = dict[str, Any]

# Counts beyond this are nobody's; numpy and mmap take them as C's ssize_t.
MAX_COUNT = 2**63 - 1


def get(body: Json, key: str) -> Any:
    if key not in body:
        raise_protocol(f"'{key}' is missing")
    return body[key]


def get_text(body: Json, key: str) -> str:
    value = get(body, key)
    if not isinstance(value, str):
        raise_protocol(f"'{key}' is no text")
    return value


def as_count(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise_protocol(f"{what} is no count")
    return value


def get_count(body: Json, key: str) -> int:
    return as_count(get(body, key), f"'{key}'")


def get_number(body: Json, key: str) -> float:
    value = get(body, key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise_protocol(f"'{key}' is no number")
    return float(value)


def get_flag(body: Json, key: str) -> bool:
    value = get(body, key)
    if not isinstance(value, bool):
        raise_protocol(f"'{key}' is neither true nor false")
    return value


def get_list(body: Json, key: str) -> list[Any]:
    value = get(body, key)
    if not isinstance(value, list):
        raise_protocol(f"'{key}' is no list")
    return value


def get_counts(body: Json, key: str) -> tuple[int, ...]:
    return tuple(as_count(value, f"an item of '{key}'") for value in get_list(body, key))


def as_object(value: Any, what: str) -> Json:
    if not isinstance(value, dict):
        raise_protocol(f"{what} is no object")
    return value


def get_objects(body: Json, key: str) -> list[Json]:
    return [as_object(value, f"an item of '{key}'") for value in get_list(body, key)]


def get_error(body: Json) -> RequestFailed:
    """The error that the message tells of."""
    error = as_object(get(body, "error"), "'error'")
    return request_failed(get_text(error, "code"), get_text(error, "message"))
