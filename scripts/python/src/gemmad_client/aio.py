"""Both sockets for asyncio. The protocol is that of the blocking side; only the waiting differs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from . import requests
from .connection import has_hung_up
from .conversation import Conversation, Sink
from .endpoint import GRACE_S, RECEIVE_BYTES, RETRY_EVERY_S, Attempt, Owner
from .errors import Disconnected, GemmadError, ProtocolError, Unresponsive
from .fields import Json
from .greeting import GREETING_S, Greeting
from .lease import Lease
from .reader import LateLease, acquire_request
from .replies import Token, parse_token
from .requests import Request
from .segment import Segment

P = ParamSpec("P")
T = TypeVar("T")


async def connect(path: str, deadline: float) -> socket.socket:
    """Raises ConnectError."""
    attempt = Attempt(path, deadline)
    while (connection := attempt.try_once(time.monotonic())) is None:
        await asyncio.sleep(RETRY_EVERY_S)
    return connection


class _Waiting:
    """Whoever awaits an answer."""

    def __init__(self, on_event: Callable[[Json], None] | None) -> None:
        self.future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._on_event = on_event

    def take_answer(self, body: Json) -> None:
        if not self.future.done():
            self.future.set_result(body)

    def take_event(self, body: Json) -> None:
        try:
            if self._on_event is not None:
                self._on_event(body)
        except Exception as error:
            if not self.future.done():
                self.future.set_exception(error)

    def take_error(self, error: GemmadError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class AsyncConnection:
    """Owns a connected socket. Belongs to one event loop."""

    def __init__(self, connection: socket.socket, conversation: Conversation, reader: asyncio.StreamReader,
                 writer: asyncio.StreamWriter) -> None:
        self.owner = Owner()
        self._socket = connection
        self._conversation = conversation
        self._writer = writer
        self._over: GemmadError | None = None
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._read(reader))

    @classmethod
    async def open(cls, connection: socket.socket, received: bytes = b"") -> AsyncConnection:
        """Takes over the socket, and what has come from it already."""
        conversation = Conversation()
        conversation.receive(received)
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        return cls(connection, conversation, reader, writer)

    def begin(self, request: Request[T]) -> tuple[int, _Waiting]:
        """Sends a request. The number that names it, and who waits."""
        self.owner.check()
        if self._over is not None:
            raise self._over
        waiting = _Waiting(request.on_event)
        number, line = self._conversation.request(request.op, request.fields, waiting)
        self._writer.write(line)
        return number, waiting

    async def call(self, request: Request[T], on_late: Sink | None = None) -> T:
        """Raises as the blocking side does. Where it is cancelled, a late answer goes to `on_late`."""
        number, waiting = self.begin(request)
        return await self.end(request, number, waiting, on_late)

    async def end(self, request: Request[T], number: int, waiting: _Waiting, on_late: Sink | None = None) -> T:
        """The answer to a request that has begun."""
        limit_s = None if request.deadline_s is None else request.deadline_s + GRACE_S
        try:
            done, _ = await asyncio.wait({waiting.future}, timeout=limit_s)
        except asyncio.CancelledError:
            self._conversation.redirect(number, on_late)
            if on_late is not None and waiting.future.done() and waiting.future.exception() is None:
                on_late.take_answer(waiting.future.result())
            raise
        if not done:
            self.give_up(Unresponsive("the daemon did not answer, well after the deadline"))
        return request.parse(waiting.future.result())

    def post(self, op: str, fields: Json) -> None:
        """Sends a request whose answer nobody needs. Never waits, never raises; from any thread."""
        if self.owner.is_here():
            with contextlib.suppress(RuntimeError):  # the loop is closed, and so is this
                self._loop.call_soon_threadsafe(self._post, op, fields)

    def _post(self, op: str, fields: Json) -> None:
        if self._over is None:
            self._writer.write(self._conversation.request(op, fields, None)[1])

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while data := await reader.read(RECEIVE_BYTES):
                self._conversation.receive(data)
            self.give_up(Disconnected("the daemon has closed the connection"))
        except GemmadError as error:
            self.give_up(error)
        except OSError as error:
            self.give_up(Disconnected(f"the daemon has closed the connection: {error}"))

    def is_usable(self) -> bool:
        """Looks, without waiting, whether the daemon is still there."""
        return self.owner.is_here() and self._over is None and not has_hung_up(self._socket)

    def give_up(self, error: GemmadError) -> GemmadError:
        """Ends the conversation: who waits gets the error, or the earlier one; returned to be raised."""
        if self._over is None:
            self._over = error
            self._writer.close()
            self._conversation.fail(error)
        return self._over

    async def close(self) -> None:
        """Idempotent."""
        self.give_up(Disconnected("this connection is closed"))
        self._task.cancel()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._writer.wait_closed()


def _asks(make: Callable[P, Request[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    @functools.wraps(make)
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.call(make(*args, **kwargs))

    return method


class AsyncClient:
    """Client for asyncio: the same operations, awaited; any number may be under way. `async with` connects and closes.

    Belongs to one event loop. When the daemon has gone, the next call connects anew.
    """

    def __init__(self, socket_path: str | os.PathLike[str], *, wait_s: float = 0.0) -> None:
        """Connects nothing yet."""
        self._path = os.fspath(socket_path)
        self._wait_s = wait_s
        self._lock = asyncio.Lock()
        self._connection: AsyncConnection | None = None

    async def __aenter__(self) -> AsyncClient:
        await self._usable()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Gives up what waits in the daemon's queue. A later call connects anew."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def call(self, request: Request[T]) -> T:
        """The answer to a request. Raises RequestFailed where the daemon refuses."""
        return await (await self._usable()).call(request)

    def stream(self, request: Request[T]) -> AsyncTokenStream[T]:
        """As Client.stream; it begins with `async with`."""
        return AsyncTokenStream(self._usable, request)

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

    async def _usable(self) -> AsyncConnection:
        async with self._lock:
            if self._connection is None or not self._connection.is_usable():
                await self.close()
                self._connection = await AsyncConnection.open(
                    await connect(self._path, time.monotonic() + self._wait_s))
            return self._connection


class AsyncTokenStream(Generic[T]):
    """TokenStream for asyncio: `async with` sends the request and gives up what has not ended, `async for` gives Tokens."""

    def __init__(self, usable: Callable[[], Coroutine[Any, Any, AsyncConnection]], request: Request[T]) -> None:
        """Sends nothing yet."""
        self._usable = usable
        self._request = requests.streamed(request, self._take)
        self._tokens: asyncio.Queue[Token | None] = asyncio.Queue()  # None: there are no more

    def _take(self, event: Json) -> None:
        self._tokens.put_nowait(parse_token(event))

    async def __aenter__(self) -> AsyncTokenStream[T]:
        self._connection = await self._usable()
        self._number, self._waiting = self._connection.begin(self._request)
        self._waiting.future.add_done_callback(lambda _: self._tokens.put_nowait(None))
        self._end = asyncio.ensure_future(self._connection.end(self._request, self._number, self._waiting))
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._waiting.future.done():
            self._connection.post("cancel", {"request": self._number})
        self._end.cancel()
        with contextlib.suppress(asyncio.CancelledError, GemmadError):
            await self._end

    def __aiter__(self) -> AsyncTokenStream[T]:
        return self

    async def __anext__(self) -> Token:
        token = await self._tokens.get()
        if token is None:
            self._tokens.put_nowait(None)
            await self.result()
            raise StopAsyncIteration
        return token

    async def result(self) -> T:
        """Waits for the end."""
        return await asyncio.shield(self._end)


class AsyncReader:
    """Reader for asyncio: acquires are awaited, leases are those of the blocking side. `async with` connects and closes.

    Belongs to one event loop; its leases may end on any thread. A release waits for device copies under way, as ever.
    """

    def __init__(self, socket_path: str | os.PathLike[str], *, wait_s: float = 0.0) -> None:
        """Connects nothing yet."""
        self._path = os.fspath(socket_path)
        self._wait_s = wait_s
        self._lock = asyncio.Lock()
        self._opened: tuple[AsyncConnection, Segment] | None = None

    async def __aenter__(self) -> AsyncReader:
        await self._usable()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection and with it all its leases. A later acquire connects anew."""
        if self._opened is not None:
            await self._opened[0].close()
            self._opened = None

    async def acquire(self, job: int | None = None, *, name: str | None = None, deadline_s: float = 60.0) -> Lease:
        """See Reader.acquire. Where it is cancelled, a lease that still comes is given back."""
        request = acquire_request(job, name, deadline_s)
        connection, segment = await self._usable()
        body = await connection.call(request, on_late=LateLease(connection.post))
        try:
            return Lease(segment, body, lambda number: connection.post("release", {"lease": number}))
        except ProtocolError as error:
            raise connection.give_up(error) from None

    async def _usable(self) -> tuple[AsyncConnection, Segment]:
        async with self._lock:
            if self._opened is None or not self._opened[0].is_usable():
                await self.close()
                self._opened = await self._open()
            return self._opened

    async def _open(self) -> tuple[AsyncConnection, Segment]:
        deadline = time.monotonic() + self._wait_s
        connection = await connect(self._path, deadline)
        try:
            segment, rest = await _receive_greeting(connection, max(deadline, time.monotonic() + GREETING_S))
            return await AsyncConnection.open(connection, rest), segment
        except BaseException:
            connection.close()
            raise


async def _receive_greeting(connection: socket.socket, deadline: float) -> tuple[Segment, bytes]:
    with Greeting() as greeting:
        while True:
            await _until_readable(connection, deadline)
            if (received := greeting.receive(connection)) is not None:
                return received


async def _until_readable(connection: socket.socket, deadline: float) -> None:
    ready = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(connection, ready.set)
    try:
        await asyncio.wait_for(ready.wait(), max(0.0, deadline - time.monotonic()))
    except asyncio.TimeoutError:
        raise Unresponsive("the daemon accepts readers but does not greet them") from None
    finally:
        loop.remove_reader(connection)
