"""A rank's reader socket, for programs that wait."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from typing import Any

from .connection import Connection, connect_retrying, poll
from .conversation import Conversation, milliseconds, without_nones
from .endpoint import RETRY_EVERY_S, Attempt
from .errors import Disconnected, GemmadError, ProtocolError, Unresponsive
from .fields import Json, get_count
from .greeting import GREETING_S, Greeting
from .lease import Lease
from .requests import Request
from .segment import Segment


def acquire_request(job: int | None, name: str | None, deadline_s: float) -> Request[Json]:
    """Raises ValueError unless exactly one of `job` and `name` says what."""
    if (job is None) == (name is None):
        raise ValueError("exactly one of 'job' and 'name' says what to acquire")
    fields = without_nones({"job": job, "name": name, "deadline_ms": milliseconds(deadline_s)})
    return Request("acquire", fields, lambda body: body, deadline_s)


class LateLease:
    """Takes the answer to an acquire that nobody waits for any more, and gives its lease back."""

    def __init__(self, post: Any) -> None:
        self._post = post

    def take_answer(self, body: Json) -> None:
        self._post("release", {"lease": get_count(body, "lease")})

    def take_event(self, body: Json) -> None:
        pass

    def take_error(self, error: GemmadError) -> None:
        pass


class Reader:
    """A connection to a rank's reader socket, with the rank's segment mapped. A context manager.

    Waits up to `wait_s` for the daemon to come up; raises ConnectError. When the daemon has gone, acquires under way raise
    Disconnected; the next acquire connects anew, to a new segment. Threads may share a reader, and wait at the same time.
    After a fork it and its leases are of no use in the child: every call there raises Disconnected, until reconnect().
    """

    def __init__(self, socket_path: str | os.PathLike[str], *, wait_s: float = 0.0) -> None:
        self._path = os.fspath(socket_path)
        self._wait_s = wait_s
        self._lock = threading.Lock()  # of _connection and _segment
        self._closed = False
        self._connection, self._segment = self._connect(wait_s)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def rank(self) -> int:
        """Whose segment this is."""
        return self._segment.rank

    @property
    def segment_bytes(self) -> int:
        return self._segment.size_bytes

    def close(self) -> None:
        """Ends the connection and with it all its leases. Later acquires raise Disconnected, until reconnect()."""
        self._closed = True
        self._connection.close()

    def reconnect(self, wait_s: float | None = None) -> None:
        """Gives up this connection, and its leases, for a new one. Raises ConnectError."""
        connection, segment = self._connect(self._wait_s if wait_s is None else wait_s)
        with self._lock:
            self._connection.close()
            self._connection, self._segment = connection, segment
            self._closed = False

    def acquire(self, job: int | None = None, *, name: str | None = None, deadline_s: float = 60.0) -> Lease:
        """A lease on the result of a job, or of the request that carries or will carry the name. Waits for it.

        Raises DeadlineExceeded, or RequestFailed with the code that the job failed with, on every rank alike.
        """
        request = acquire_request(job, name, deadline_s)
        connection, segment = self._usable()
        body = connection.submit(request).result(on_late=LateLease(connection.post))
        try:
            return Lease(segment, body, lambda number: connection.post("release", {"lease": number}))
        except ProtocolError as error:
            # A lease that came with nonsense can only be ended with the connection.
            raise connection.give_up(error) from None

    def _usable(self) -> tuple[Connection, Segment]:
        with self._lock:
            if self._closed:
                raise Disconnected("this reader is closed")
            self._connection.owner.check()
            if not self._connection.is_usable():
                self._connection.close()
                self._connection, self._segment = self._connect(self._wait_s)
            return self._connection, self._segment

    def _connect(self, wait_s: float) -> tuple[Connection, Segment]:
        deadline = time.monotonic() + wait_s
        connection = connect_retrying(Attempt(self._path, deadline).try_once, RETRY_EVERY_S)
        try:
            segment, rest = _receive_greeting(connection, max(deadline, time.monotonic() + GREETING_S))
            conversation = Conversation()
            conversation.receive(rest)
            return Connection(connection, conversation), segment
        except BaseException:
            connection.close()
            raise


def _receive_greeting(connection: socket.socket, deadline: float) -> tuple[Segment, bytes]:
    with Greeting() as greeting:
        while True:
            if not poll(connection, select.POLLIN, deadline):
                raise Unresponsive("the daemon accepts readers but does not greet them")
            if (received := greeting.receive(connection)) is not None:
                return received
