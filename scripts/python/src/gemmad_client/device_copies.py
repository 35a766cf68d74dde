"""Copies from a segment to devices of torch, from memory that CUDA knows as pinned."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any

import torch

from .segment import Segment

# cudaHostRegisterReadOnly: CUDA refuses a read-only mapping without it.
_REGISTER_READ_ONLY = 8
_lock = threading.Lock()
# Segments that could be pinned, and those that could not: asked once each.
_pinned: weakref.WeakKeyDictionary[Segment, bool] = weakref.WeakKeyDictionary()


def pin(segment: Segment) -> bool:
    """Registers the whole mapping with CUDA, once, until it goes. False where that is not possible."""
    with _lock:
        if segment not in _pinned:
            _pinned[segment] = _register(segment)
        return _pinned[segment]


def _register(segment: Segment) -> bool:
    cudart: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    result = cudart.cudaHostRegister(segment.address, segment.size_bytes, _REGISTER_READ_ONLY)
    if int(result) != 0:
        # The failure would be reported again by whatever is launched next: let that be this.
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device="cuda")
        return False
    # Runs before the segment's own memory goes, as it is given up after its last user.
    weakref.finalize(segment, cudart.cudaHostUnregister, segment.address)
    return True


class DeviceCopies:
    """The copies of one lease. Not thread-safe."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._under_way: dict[tuple[int, int], torch.cuda.Event] = {}  # by device and stream: the last of each

    def copy(self, source: torch.Tensor, destination: torch.Tensor, non_blocking: bool) -> None:
        """`source` lies in the segment. On the current stream of the destination's device."""
        if destination.device.type != "cuda":
            destination.copy_(source)
            return
        with torch.cuda.device(destination.device):
            if not pin(self._segment):
                source = source.pin_memory()  # torch keeps it until the copy is done
            destination.copy_(source, non_blocking=non_blocking)
            if non_blocking:
                stream = torch.cuda.current_stream()
                key = (torch.cuda.current_device(), stream.cuda_stream)
                if key not in self._under_way:
                    self._under_way[key] = torch.cuda.Event()  # type: ignore[no-untyped-call]
                self._under_way[key].record(stream)

    def wait(self) -> None:
        """Until all are done."""
        for event in self._under_way.values():
            event.synchronize()
        self._under_way.clear()
