"""What can go wrong. Every error of this package is a GemmadError."""

from __future__ import annotations

from typing import NoReturn


class GemmadError(Exception):
    """Whatever this package raises."""


class ConnectError(GemmadError):
    """Nothing serves the socket, or did not in the time given."""


class Disconnected(GemmadError):
    """The daemon has gone, or this connection is closed or of another process. The next call connects anew."""


class ProtocolError(GemmadError):
    """What the other side says cannot be gemmad's. The connection is given up."""


class Unresponsive(GemmadError):
    """No answer well after the deadline that the daemon itself keeps. The connection is given up."""


class LeaseEnded(GemmadError):
    """The tensor belongs to a lease that has been released."""


class RequestFailed(GemmadError):
    """The daemon's own refusal. `code` is for programs, `message` for people; the README lists the codes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type[RequestFailed], tuple[str, str]]:
        return type(self), (self.code, self.message)


class DeadlineExceeded(RequestFailed):
    """Code `deadline`: not done, or not published, in time."""


class UnknownOperation(RequestFailed):
    """Code `unknown_op`: this daemon does not know the operation."""


_CLASSES: dict[str, type[RequestFailed]] = {"deadline": DeadlineExceeded, "unknown_op": UnknownOperation}


def request_failed(code: str, message: str) -> RequestFailed:
    """The error of that code."""
    return _CLASSES.get(code, RequestFailed)(code, message)


def raise_protocol(what: str) -> NoReturn:
    raise ProtocolError(f"the daemon's answer makes no sense: {what}")
