"""Connecting to a Unix socket of gemmad. Shared by the blocking and the asyncio side, which wait in their own ways."""

from __future__ import annotations

import errno
import os
import socket

from .errors import ConnectError, Disconnected

RETRY_EVERY_S = 0.01
# The daemon keeps deadlines; this much later it is taken for hung.
GRACE_S = 10.0
RECEIVE_BYTES = 256 * 1024
# The socket is not there yet, nobody listens yet, or too many wait to be let in.
_MAY_COME = {errno.ENOENT, errno.ECONNREFUSED, errno.EAGAIN, errno.EINTR}


class Attempt:
    """Tries to connect until it works or the time is over: call try_once() every RETRY_EVERY_S."""

    def __init__(self, path: str, deadline: float) -> None:
        self._path = path
        self._deadline = deadline

    def try_once(self, now: float) -> socket.socket | None:
        """A socket that never blocks; None: not yet. Raises ConnectError."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            connection.connect(self._path)
            return connection
        except OSError as error:
            connection.close()
            if error.errno in _MAY_COME and now < self._deadline:
                return None
            raise ConnectError(f"nothing serves the socket {self._path}: {error.strerror or error}") from error


class Owner:
    """The process that made a connection: after a fork it is of no use in the child, which would talk in between."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def is_here(self) -> bool:
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raises Disconnected in another process."""
        if not self.is_here():
            raise Disconnected(f"this connection was made by process {self._pid}: connect anew after a fork")
