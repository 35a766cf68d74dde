"""Text of an enhancement as it is generated, for programs that wait."""

from __future__ import annotations

import collections
from typing import Generic, TypeVar

from .connection import Connection
from .fields import Json
from .replies import Token, parse_token
from .requests import Request, streamed

T = TypeVar("T")


class TokenStream(Generic[T]):
    """An iterator over Tokens; then result() is the answer. A context manager that gives up what has not ended.

    Both raise as Client.call does. Not thread-safe; the client is.
    """

    def __init__(self, connection: Connection, request: Request[T]) -> None:
        self._connection = connection
        self._tokens: collections.deque[Token] = collections.deque()
        self._pending = connection.submit(streamed(request, self._take))

    def _take(self, event: Json) -> None:
        self._tokens.append(parse_token(event))

    def __iter__(self) -> TokenStream[T]:
        return self

    def __next__(self) -> Token:
        self._connection.wait(self._pending, lambda: bool(self._tokens))
        if self._tokens:
            return self._tokens.popleft()
        self._pending.result()
        raise StopIteration

    def result(self) -> T:
        """Waits for the end."""
        return self._pending.result()

    def close(self) -> None:
        """Gives up what has not ended."""
        if not self._pending.done:
            self._connection.post("cancel", {"request": self._pending.id})

    def __enter__(self) -> TokenStream[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
