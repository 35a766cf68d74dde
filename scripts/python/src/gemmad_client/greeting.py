"""What a reader hears first: a line, and along with its first byte the descriptor of the rank's segment."""

from __future__ import annotations

import os
import socket

from .conversation import parse_line
from .endpoint import RECEIVE_BYTES
from .errors import Disconnected, ProtocolError
from .fields import get_count, get_error, get_flag
from .segment import Segment

PROTOCOL_VERSION = 1
# A daemon that listens gets this long to greet, also where the caller would rather not wait.
GREETING_S = 2.0
MAX_LINE_BYTES = 64 * 1024
_MAX_FDS = 4


class Greeting:
    """A context manager: the descriptor goes at its end, as the mapping needs none."""

    def __init__(self) -> None:
        self._received = b""
        self._fds: list[int] = []

    def __enter__(self) -> Greeting:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._fds:
            os.close(fd)

    def receive(self, connection: socket.socket) -> tuple[Segment, bytes] | None:
        """Takes what has come to a readable socket; None while it is not all. The segment, and what came behind the
        greeting. Raises Disconnected, ProtocolError, or RequestFailed as the daemon says."""
        try:
            data, fds, _, _ = socket.recv_fds(connection, RECEIVE_BYTES, _MAX_FDS, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise Disconnected(f"the daemon has closed the reader socket: {error}") from error
        self._received += data
        self._fds += fds
        if b"\n" in self._received:
            return self._finish()
        if not data:
            raise Disconnected("the daemon has closed the reader socket instead of greeting")
        if len(self._received) > MAX_LINE_BYTES:
            raise ProtocolError(f"the daemon greets with a line of more than {MAX_LINE_BYTES} bytes")
        return None

    def _finish(self) -> tuple[Segment, bytes]:
        line, rest = self._received.split(b"\n", 1)
        body = parse_line(line)
        if "ok" in body and not get_flag(body, "ok"):
            raise get_error(body)
        version = get_count(body, "gemmad_reader")
        if version != PROTOCOL_VERSION:
            raise ProtocolError(f"the daemon speaks version {version} of the reader protocol, this library version "
                                f"{PROTOCOL_VERSION}")
        rank, size_bytes = get_count(body, "rank"), get_count(body, "segment_bytes")
        if len(self._fds) != 1:
            raise ProtocolError(f"the daemon passes {len(self._fds)} descriptors, not its segment's one")
        return Segment(self._fds[0], size_bytes, rank), rest
