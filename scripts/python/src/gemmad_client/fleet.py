"""The processes that run one pipeline in lockstep, one a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fleet:
    """This process's place among them. Every rank makes the same calls in the same order.

    `share` gives on every rank what rank 0 passed: a collective. Without it the ranks must be given a session that all
    know, and cannot enhance prompts, as only rank 0 hears the text.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0        # among the ranks on this host
    local_world_size: int = 1
    share: Callable[[Any], Any] | None = None

    @classmethod
    def here(cls) -> Fleet:
        """As torch.distributed says where it is initialised, else as RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE
        in the environment say, else a fleet of one."""
        distributed = _distributed()
        if distributed is None:
            rank, world_size, share = _environment("RANK", 0), _environment("WORLD_SIZE", 1), None
        else:
            rank, world_size, share = distributed.get_rank(), distributed.get_world_size(), _broadcast
        return cls(rank, world_size, _environment("LOCAL_RANK", rank), _environment("LOCAL_WORLD_SIZE", world_size), share)


def _environment(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text else default


def _distributed() -> Any:
    """torch.distributed where it is initialised, else None."""
    try:
        import torch.distributed as distributed
    except ImportError:
        return None
    return distributed if distributed.is_available() and distributed.is_initialized() else None


def _broadcast(value: Any) -> Any:
    values = [value]
    _distributed().broadcast_object_list(values, src=0)
    return values[0]
