"""A blocking conversation over a socket, for any number of threads."""

from __future__ import annotations

import collections
import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from .conversation import Conversation, Sink
from .endpoint import GRACE_S, RECEIVE_BYTES, Owner
from .errors import Disconnected, GemmadError, Unresponsive
from .fields import Json
from .requests import Request

T = TypeVar("T")


def has_hung_up(connection: socket.socket) -> bool:
    """Whether the other side has closed; what it said before may still be unread."""
    return poll(connection, select.POLLRDHUP, 0.0)


def poll(connection: socket.socket, events: int, deadline: float | None) -> bool:
    """Waits until the socket is ready; False when the deadline is over first."""
    watch = select.poll()
    watch.register(connection, events)
    timeout_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
    return bool(watch.poll(timeout_ms))


class Pending(Generic[T]):
    """A request that has been sent. Many may be under way on one connection; any thread may wait for any of them."""

    def __init__(self, connection: Connection, request: Request[T]) -> None:
        self._connection = connection
        self._request = request
        self._answer: Json | None = None
        self._error: Exception | None = None
        self.deadline = None if request.deadline_s is None else time.monotonic() + request.deadline_s + GRACE_S
        self.id = 0

    @property
    def done(self) -> bool:
        """Whether result() would return or raise at once. Reads nothing from the socket."""
        return self._answer is not None or self._error is not None

    def result(self, on_late: Sink | None = None) -> T:
        """Waits for the answer. Raises RequestFailed, Disconnected, ProtocolError or Unresponsive.

        When the wait is interrupted, a late answer goes to `on_late`.
        """
        try:
            self._connection.wait(self)
        except GemmadError:
            raise
        except BaseException:
            self._connection.conversation.redirect(self.id, on_late)
            if self._answer is not None and on_late is not None:
                on_late.take_answer(self._answer)
            raise
        if self._error is not None:
            raise self._error
        assert self._answer is not None
        return self._request.parse(self._answer)

    # As the sink of its request.

    def take_answer(self, body: Json) -> None:
        self._answer = body

    def take_event(self, body: Json) -> None:
        try:
            if self._request.on_event is not None:
                self._request.on_event(body)
        except Exception as error:  # its own waiter's business, not that of the thread which reads for it
            self._error = error

    def take_error(self, error: GemmadError) -> None:
        self._error = error


class Connection:
    """Owns a connected socket that never blocks. Whoever waits reads for all; whoever sends sends for all."""

    def __init__(self, connection: socket.socket, conversation: Conversation) -> None:
        self.conversation = conversation
        self._socket = connection
        self.owner = Owner()
        self._over: GemmadError | None = None
        self._outbox: collections.deque[bytes] = collections.deque()
        self._unsent = b""
        self._sending = threading.Lock()     # of _unsent
        self._turn = threading.Condition()   # of the conversation, _reading and _over
        self._reading = False

    def submit(self, request: Request[T]) -> Pending[T]:
        """Sends a request. Raises Disconnected, or UnicodeEncodeError for text that is no UTF-8."""
        self.owner.check()
        pending = Pending(self, request)
        with self._turn:
            if self._over is not None:
                raise self._over
            pending.id, line = self.conversation.request(request.op, request.fields, pending)
        self._outbox.append(line)
        with self._sending:
            try:
                sent = self._drain(pending.deadline)
            except OSError:  # the daemon may have said why: who waits will see
                sent = True
        if not sent:
            raise self.give_up(Unresponsive("the daemon does not read its socket"))
        return pending

    def post(self, op: str, fields: Json) -> None:
        """Sends a request whose answer nobody needs. Never waits, never raises: also for finalizers."""
        if not self.owner.is_here():
            return
        self._outbox.append(self.conversation.request(op, fields, None)[1])
        # Else who holds the lock looks again before it goes.
        while self._outbox and self._sending.acquire(blocking=False):
            try:
                self._drain(0.0)
            except OSError:
                self._outbox.clear()  # the daemon has gone, and what the request was about with it
            finally:
                self._sending.release()
            if self._unsent:
                return

    def _drain(self, deadline: float | None) -> bool:
        """False when the deadline is over before all is sent."""
        while self._unsent or self._outbox:
            if not self._unsent:
                self._unsent = self._outbox.popleft()
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent):]
            except BlockingIOError:
                if not poll(self._socket, select.POLLOUT, deadline):
                    return False
        return True

    def wait(self, pending: Pending[T], or_until: Callable[[], bool] = lambda: False) -> None:
        """Until the request has its answer or an error, or `or_until` is true after an event. At its deadline raises
        Unresponsive, and gives up the connection."""
        self.owner.check()
        deadline = pending.deadline
        while True:
            with self._turn:
                while self._reading and not pending.done and not or_until() and not _is_over(deadline):
                    self._turn.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
                if pending.done or or_until():
                    return
                if _is_over(deadline):
                    break
                self._reading = True
            try:
                data = self._receive(deadline)
            finally:
                with self._turn:
                    self._reading = False
                    self._turn.notify_all()
            if data is not None:
                self._take(data)
        raise self.give_up(Unresponsive("the daemon did not answer, well after the deadline"))

    def _receive(self, deadline: float | None) -> bytes | None:
        """What has come; empty at the end; None when the deadline is over."""
        while True:
            try:
                return self._socket.recv(RECEIVE_BYTES)
            except BlockingIOError:
                pass
            except OSError:
                return b""
            try:
                if not poll(self._socket, select.POLLIN, deadline):
                    return None
            except ValueError:  # closed by another thread
                return b""

    def _take(self, data: bytes) -> None:
        try:
            if not data:
                raise Disconnected("the daemon has closed the connection")
            with self._turn:
                self.conversation.receive(data)
                self._turn.notify_all()
        except GemmadError as error:
            self.give_up(error)

    def is_usable(self) -> bool:
        """Looks, without waiting, whether the daemon is still there."""
        return self.owner.is_here() and self._over is None and not has_hung_up(self._socket)

    def give_up(self, error: GemmadError) -> GemmadError:
        """Ends the conversation: who waits gets the error, or the earlier one; returned to be raised."""
        with self._turn:
            if self._over is None:
                self._over = error
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
                self.conversation.fail(error)
                self._turn.notify_all()
            return self._over

    def close(self) -> None:
        """Ends the conversation and the leases that it holds. Idempotent. In a forked child only the copy goes."""
        if self.owner.is_here():
            self.give_up(Disconnected("this connection is closed"))
        self._socket.close()


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def connect_retrying(try_once: Callable[[float], socket.socket | None], every_s: float) -> socket.socket:
    """Calls `try_once` with the time until it gives a socket."""
    while (connection := try_once(time.monotonic())) is None:
        time.sleep(every_s)
    return connection
