"""The control socket, for programs that wait."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from . import requests
from .connection import Connection, Pending, connect_retrying
from .conversation import Conversation
from .endpoint import RETRY_EVERY_S, Attempt
from .errors import Disconnected
from .requests import Request
from .streams import TokenStream

P = ParamSpec("P")
T = TypeVar("T")


def _asks(make: Callable[P, Request[T]]) -> Callable[Concatenate[Client, P], T]:
    """A method that makes a request of its arguments, and waits for the answer."""
    @functools.wraps(make)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.call(make(*args, **kwargs))

    return method


class Client:
    """A connection to a daemon's control socket. A context manager.

    Waits up to `wait_s` for the daemon to come up; raises ConnectError. When the daemon has gone, calls under way raise
    Disconnected; the next call connects anew, waiting as long again. Threads may share a client. After a fork it is of no
    use in the child: every call there raises Disconnected, until reconnect().
    """

    def __init__(self, socket_path: str | os.PathLike[str], *, wait_s: float = 0.0) -> None:
        self._path = os.fspath(socket_path)
        self._wait_s = wait_s
        self._lock = threading.Lock()  # of _connection
        self._closed = False
        self._connection = self._connect(wait_s)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives up what waits in the daemon's queue. Later calls raise Disconnected, until reconnect()."""
        self._closed = True
        self._connection.close()

    def reconnect(self, wait_s: float | None = None) -> None:
        """Gives up this connection for a new one. Raises ConnectError."""
        connection = self._connect(self._wait_s if wait_s is None else wait_s)
        with self._lock:
            self._connection.close()
            self._connection = connection
            self._closed = False

    def submit(self, request: Request[T]) -> Pending[T]:
        """Sends a request (see gemmad_client.requests) and does not wait: many may be under way."""
        return self._usable().submit(request)

    def call(self, request: Request[T]) -> T:
        """The answer to a request. Raises RequestFailed where the daemon refuses."""
        return self.submit(request).result()

    def stream(self, request: Request[T]) -> TokenStream[T]:
        """Sends an enhancement (see gemmad_client.requests), or an encode that enhances, to hear its text as it comes."""
        return TokenStream(self._usable(), request)

    encode = _asks(requests.encode)
    tokenize = _asks(requests.tokenize)
    info = _asks(requests.info)
    health = _asks(requests.health)
    metrics = _asks(requests.metrics)
    cancel = _asks(requests.cancel)
    switch = _asks(requests.switch)
    sleep = _asks(requests.sleep)
    wake = _asks(requests.wake)
    shutdown = _asks(requests.shutdown)
    enhance_t2v = _asks(requests.enhance_t2v)
    enhance_i2v = _asks(requests.enhance_i2v)

    def _connect(self, wait_s: float) -> Connection:
        attempt = Attempt(self._path, time.monotonic() + wait_s)
        return Connection(connect_retrying(attempt.try_once, RETRY_EVERY_S), Conversation())

    def _usable(self) -> Connection:
        with self._lock:
            if self._closed:
                raise Disconnected("this client is closed")
            self._connection.owner.check()
            if not self._connection.is_usable():
                self._connection.close()
                self._connection = self._connect(self._wait_s)
            return self._connection
