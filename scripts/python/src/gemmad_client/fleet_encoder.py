"""Encoding for a fleet: rank 0 asks, every rank reads the result on its own host, and all fail alike.

The request carries a name that every rank can compute, and every rank acquires by it: no collective is needed. A job that
fails fails by name on every rank. A request that the daemon never took has no name there, and the others would wait for
it until their deadline: rank 0 then sends one that always fails, of a single prompt without tokens, under the same name.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from .client import Client
from .errors import ConnectError, GemmadError, RequestFailed
from .fields import Json
from .fleet import Fleet
from .lease import Lease
from .reader import Reader
from .requests import enhance_i2v, enhance_t2v

log = logging.getLogger("gemmad_client")

# The daemon keeps the deadline, and names the reason; ranks may arrive that much apart.
SKEW_S = 30.0
RETRY_EVERY_S = 0.1
# With these a request was never taken: no reader hears of it.
NEVER_TAKEN = {"bad_request", "unknown_op", "line_too_long", "duplicate_id", "too_many_prompts", "too_many_clients",
               "queue_full", "name_in_use", "no_tokenizer", "no_enhancer", "no_vision"}
# With these no prompt of this kind is ever rewritten.
CANNOT_ENHANCE = {"unknown_op", "no_tokenizer", "no_enhancer", "no_vision"}
# The error of the prompt without tokens. Text has at least BOS, so that no prompt of a pipeline has it.
NO_TOKENS = "empty_prompt"


class FleetError(GemmadError, ValueError):
    """Raised on every rank of the fleet with the same text, so that the pipeline may go on with its next job."""


class EnhanceUnavailable(FleetError, NotImplementedError):
    """This daemon does not enhance prompts, or the fleet has no way to share the text."""


class FleetEncoder:
    """Made and called on every rank, in the same order. Not thread-safe. Not to be used in a forked child."""

    def __init__(self, socket_path: str | os.PathLike[str], *, fleet: Fleet | None = None, session: str | None = None,
                 reader_socket: str | None = None, deadline_s: float = 120.0, wait_s: float = 0.0) -> None:
        """`session` is needed where ranks share nothing (see Fleet): a text that all of them know, and that no other
        fleet of this daemon uses. `reader_socket` overrides the choice by local rank. Waits up to `wait_s` for the daemon.
        Raises FleetError where rank 0 finds no daemon, else GemmadError."""
        self.fleet = fleet or Fleet.here()
        self._path = os.fspath(socket_path)
        self._deadline_s = deadline_s
        self._wait_s = wait_s
        self._count = itertools.count()
        self._client: Client | None = None
        self._session, self.info = self._agree(session)
        sockets = [reader_socket] if reader_socket else reader_sockets_here(self.info)
        self._readers = -(-self.fleet.local_world_size // len(sockets))
        self._reader = Reader(sockets[self.fleet.local_rank % len(sockets)], wait_s=wait_s)

    def encode(self, prompts: Sequence[str], outputs: Sequence[str],
               enhance: bool | Mapping[str, Any] | None = None) -> Lease:
        """A lease on the result, in which every prompt is ok. Raises FleetError. With `enhance` (see requests.encode; alike
        on every rank) the first prompt is rewritten before: nothing need be shared for that."""
        name = self._name(prompts, outputs, enhance is not None and enhance is not False)
        reason = self._ask(name, prompts, outputs, enhance) if self.fleet.rank == 0 else None
        if reason is not None and self.fleet.world_size == 1:
            raise FleetError(f"gemmad: {reason}") from reason
        try:
            lease = self._reader.acquire(name=name, deadline_s=self._deadline_s + SKEW_S)
        except RequestFailed as error:
            raise FleetError(f"gemmad: {error}") from reason or error
        except GemmadError as error:
            raise self._not_taken(reason or error) from reason or error
        try:
            self._check(lease, reason)
        except FleetError:
            lease.release()
            raise
        return lease

    def enhance(self, op: Literal["enhance_t2v", "enhance_i2v"], prompt: str, image: Any, options: Json) -> str:
        """The text that rank 0 got, on every rank. Raises FleetError, or EnhanceUnavailable."""
        if self.fleet.world_size > 1 and self.fleet.share is None:
            raise EnhanceUnavailable("gemmad: ranks without torch.distributed cannot share an enhanced prompt: give Fleet "
                                     "a 'share'")
        outcome = self._ask_to_enhance(op, prompt, image, options) if self.fleet.rank == 0 else None
        if self.fleet.share is not None:
            outcome = self.fleet.share(outcome)
        assert outcome is not None
        kind, text = outcome
        if kind == "text":
            return text
        raise (EnhanceUnavailable if kind == "unavailable" else FleetError)(text)

    def close(self) -> None:
        """Ends its connections, and with them its leases."""
        self._reader.close()
        if self._client is not None:
            self._client.close()

    # Coming to an agreement.

    def _agree(self, session: str | None) -> tuple[str, Json]:
        share = self.fleet.share if self.fleet.world_size > 1 else None
        if self.fleet.world_size > 1 and share is None and session is None:
            raise FleetError("gemmad: ranks without torch.distributed need a 'session' that all of them know")
        found: dict[str, Any] = {}
        if self.fleet.rank == 0 or share is None:
            try:
                found = {"session": session or secrets.token_hex(8), "info": self._connected().info()}
            except GemmadError as error:
                found = {"error": f"gemmad: {error}"}
        if share is not None:
            found = share(found)
        if "error" in found:
            raise FleetError(found["error"])
        return found["session"], found["info"]

    def _connected(self) -> Client:
        if self._client is None:
            self._client = Client(self._path, wait_s=self._wait_s)
        return self._client

    def _name(self, prompts: Sequence[str], outputs: Sequence[str], enhances: bool = False) -> str:
        """Other prompts have another name: ranks out of step wait in vain rather than read each other's results."""
        content = json.dumps([list(prompts), list(outputs), enhances]).encode()
        return f"{self._session}-{next(self._count)}-{hashlib.sha256(content).hexdigest()[:16]}"

    # Rank 0's part.

    def _ask(self, name: str, prompts: Sequence[str], outputs: Sequence[str],
             enhance: bool | Mapping[str, Any] | None) -> Exception | None:
        """Returns once all ranks can read the result, or will hear why not. The reason where nothing was computed."""
        try:
            self._connected().encode(prompts, outputs=outputs, name=name, readers=self._readers,
                                     deadline_s=self._deadline_s, enhance=enhance)
            return None
        except RequestFailed as error:
            if error.code not in NEVER_TAKEN:
                return None  # the job failed, on every rank
            reason: Exception = error
        except (GemmadError, ValueError, OSError) as error:  # no UTF-8, an image that is none
            reason = error
        if self.fleet.world_size > 1:
            self._fail_by_name(name)
        return reason

    def _fail_by_name(self, name: str) -> None:
        until = time.monotonic() + self._deadline_s
        while time.monotonic() < until:
            try:
                self._connected().encode([[]], outputs=["last_hidden_state"], name=name, readers=self._readers,
                                         deadline_s=self._deadline_s)
                return
            except RequestFailed as error:
                if error.code not in ("queue_full", "too_many_clients"):
                    return
            except GemmadError:
                return  # it has gone, as the others will see
            time.sleep(RETRY_EVERY_S)

    def _ask_to_enhance(self, op: str, prompt: str, image: Any, options: Json) -> tuple[str, str]:
        try:
            options = {"deadline_s": self._deadline_s, **options}
            request = enhance_t2v(prompt, **options) if op == "enhance_t2v" else enhance_i2v(prompt, image, **options)
            return "text", str(self._connected().call(request))
        except RequestFailed as error:
            return "unavailable" if error.code in CANNOT_ENHANCE else "error", f"gemmad: {error}"
        except (GemmadError, ValueError, OSError) as error:  # no UTF-8, an image that is none
            return "error", f"gemmad: {error}"

    # Failing alike.

    def _check(self, lease: Lease, reason: Exception | None) -> None:
        for index, prompt in enumerate(lease.prompts):
            if prompt.error is None:
                continue
            if prompt.error.code == NO_TOKENS:
                raise self._not_taken(reason) from reason
            raise FleetError(f"gemmad: prompt {index}: {prompt.error}")

    def _not_taken(self, reason: Exception | None) -> FleetError:
        if reason is not None:
            log.error("rank %d: %s", self.fleet.rank, reason)
        if self.fleet.world_size == 1:
            return FleetError(f"gemmad: {reason}")
        return FleetError("gemmad refuses the request or has gone; the log of rank 0 tells why")


def reader_sockets_here(info: Json) -> list[str]:
    """The reader sockets of the ranks on this host, one a segment, by rank. Raises ConnectError where there are none."""
    host = socket.gethostname()
    mine = [rank["reader_socket"] for rank in info["ranks"] if rank["host"] == host]
    # A container may have a name of its own, and the daemon's sockets all the same.
    found = mine or [rank["reader_socket"] for rank in info["ranks"] if os.path.exists(rank["reader_socket"])]
    if not found:
        raise ConnectError(f"no rank of gemmad is on this host, {host}, nor is any of their reader sockets")
    return list(dict.fromkeys(found))
