"""One side of a conversation in JSON lines: numbers requests, and tells which answer is whose. Does no I/O.

Both sockets of gemmad speak like this: {"id": 7, "op": "encode", ...} is answered, in any order, by one line
{"id": 7, "ok": true, ...} or {"id": 7, "ok": false, "error": {...}}, before which {"id": 7, "event": ...} may come.
"""

from __future__ import annotations

import itertools
import json
from typing import Any, Protocol

from .errors import GemmadError, ProtocolError, raise_protocol
from .fields import Json, get_error, get_flag

# Far above any reply (a tensor takes about 120 bytes): whoever sends more is not gemmad.
MAX_LINE_BYTES = 256 << 20


class Sink(Protocol):
    """Whoever waits for the answer to one request. Called once with the answer or an error; before, with events."""

    def take_answer(self, body: Json) -> None: ...
    def take_event(self, body: Json) -> None: ...
    def take_error(self, error: GemmadError) -> None: ...


class Lines:
    """Cuts what comes into lines. Holds at most one unfinished line, of at most `max_bytes`."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._received = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete now, without their newlines. Raises ProtocolError for one too long."""
        end = data.rfind(b"\n")
        if end < 0:
            self._received += data
            lines = []
        else:
            lines = bytes(self._received + data[:end]).split(b"\n")
            self._received = bytearray(data[end + 1:])
        if any(len(line) > self._max_bytes for line in (*lines, self._received)):
            raise ProtocolError(f"the daemon sends a line of more than {self._max_bytes} bytes")
        return lines


def parse_line(line: bytes) -> Json:
    """A line as an object. Raises ProtocolError."""
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the daemon sends a line that is no JSON: {line[:80]!r}") from error
    if not isinstance(body, dict):
        raise_protocol(f"a line is no object: {line[:80]!r}")
    return body


class Conversation:
    """Not thread-safe, but for request(): it may be called from anywhere, a finalizer included, at any time."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._lines = Lines(max_line_bytes)
        self._ids = itertools.count(1)
        self._sinks: dict[int, Sink | None] = {}

    def request(self, op: str, fields: Json, sink: Sink | None) -> tuple[int, bytes]:
        """The request's number, and the line to send. Without a sink its answer is taken and dropped.

        Raises UnicodeEncodeError (a ValueError) for text that is no UTF-8.
        """
        number = next(self._ids)
        line = json.dumps({"id": number, "op": op, **fields}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        data = line.encode() + b"\n"
        self._sinks[number] = sink
        return number, data

    def redirect(self, number: int, sink: Sink | None) -> None:
        """The answer to a request goes elsewhere. Ignored once it has come."""
        if number in self._sinks:
            self._sinks[number] = sink

    def owes(self, number: int) -> bool:
        """Whether that request still waits for its answer."""
        return number in self._sinks

    def receive(self, data: bytes) -> None:
        """Hands what has come to those who wait. Raises ProtocolError for what answers nobody or is no answer, and
        RequestFailed for a refusal of the whole connection; then it is over: call fail()."""
        for line in self._lines.feed(data):
            if line:
                self._take(parse_line(line))

    def _take(self, body: Json) -> None:
        number = body.get("id")
        if number is None and body.get("ok") is False:
            raise get_error(body)
        if isinstance(number, bool) or not isinstance(number, int) or number not in self._sinks:
            raise_protocol(f"it answers {str(number)[:40]!r}, which nobody asked")
        if "event" in body:
            sink = self._sinks[number]
            if sink is not None:
                sink.take_event(body)
            return
        refusal = None if get_flag(body, "ok") else get_error(body)
        sink = self._sinks.pop(number)
        if sink is None:
            return
        if refusal is None:
            sink.take_answer(body)
        else:
            sink.take_error(refusal)

    def fail(self, error: GemmadError) -> None:
        """Nothing more will come: everybody who waits gets the error."""
        sinks, self._sinks = self._sinks, {}
        for sink in list(sinks.values()):
            if sink is not None:
                sink.take_error(error)


def milliseconds(seconds: float) -> int:
    """As fields have it: at least 0, rounded up."""
    return max(0, -int(-seconds * 1000 // 1))


def without_nones(fields: dict[str, Any]) -> Json:
    """The fields that say something."""
    return {key: value for key, value in fields.items() if value is not None}
