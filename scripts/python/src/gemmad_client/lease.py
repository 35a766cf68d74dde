"""What a reader holds: the tensors of one result, in the segment, until its lease ends."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import LeaseEnded, RequestFailed, raise_protocol
from .fields import Json, get_count, get_counts, get_error, get_flag, get_objects, get_text
from .segment import Segment

if TYPE_CHECKING:
    import torch

    from .device_copies import DeviceCopies

# numpy has no bfloat16: BF16 is seen as its bits.
_NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": np.dtype(np.uint16), "I32": np.dtype(np.int32),
    "U8": np.dtype(np.uint8)}


class LeasedTensor:
    """A dense tensor in the segment: [n, D], real tokens only, row 0 = BOS. `dtype` is as the daemon writes it: "F32",
    "BF16", "F16", "I32" or "U8". Raises LeaseEnded once its lease is released."""

    def __init__(self, hold: Hold, name: str, dtype: str, shape: tuple[int, ...], offset: int, size_bytes: int) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.offset = offset
        self.size_bytes = size_bytes
        self._hold = hold

    def __repr__(self) -> str:
        return f"<{self.name} {self.dtype} {list(self.shape)}>"

    def numpy(self) -> NDArray[Any]:
        """A read-only view, without a copy. BF16 comes as uint16, its bits. The lease lasts at least as long as the view
        or anything made of it without a copy."""
        return np.frombuffer(self._view().toreadonly(), _NUMPY_TYPES[self.dtype]).reshape(self.shape)

    def to_float32(self) -> NDArray[np.float32]:
        """Its values as a new array."""
        values = self.numpy()
        if self.dtype == "BF16":  # the upper half of an F32
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32)

    def tensor(self) -> torch.Tensor:
        """The same as a torch.Tensor on the CPU, BF16 as bfloat16. To write to it ends the process by SIGSEGV."""
        import torch

        dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I32": torch.int32,
                 "U8": torch.uint8}[self.dtype]
        return torch.frombuffer(self._view(), dtype=dtype).reshape(self.shape)

    def copy_to(self, destination: torch.Tensor, *, non_blocking: bool = False) -> None:
        """Copies into a tensor of its shape, converting to its dtype: on the current stream of its device, from memory that
        CUDA has pinned. With `non_blocking` the copy may go on after the return; the lease lasts until it is done."""
        self._hold.copy(self.tensor(), destination, non_blocking)

    def to(self, device: str | torch.device, dtype: torch.dtype | None = None, *,
           non_blocking: bool = False) -> torch.Tensor:
        """A copy on a device, made as copy_to does."""
        import torch

        source = self.tensor()
        copy = torch.empty(self.shape, dtype=dtype or source.dtype, device=device)
        self._hold.copy(source, copy, non_blocking)
        return copy

    def _view(self) -> memoryview:
        return self._hold.view(self.offset, self.size_bytes)


@dataclass(frozen=True)
class LeasedPrompt:
    """One prompt of the request, in its order. With an `error` there are no tensors."""

    error: RequestFailed | None
    num_tokens: int = 0
    padded_length: int = 0
    truncated: bool = False
    tensors: Mapping[str, LeasedTensor] = field(default_factory=lambda: MappingProxyType({}))

    def __getitem__(self, name: str) -> LeasedTensor:
        """The tensor of that name. Raises the prompt's error, or KeyError."""
        if self.error is not None:
            raise self.error
        return self.tensors[name]


class Hold:
    """What keeps a lease: shared by it and its tensors, so that neither has to outlive the other."""

    def __init__(self, segment: Segment, job: int, end: Callable[[], None]) -> None:
        self._segment = segment
        self._job = job
        self._copies: DeviceCopies | None = None
        self._loan: Any = segment.lend()
        self.end = weakref.finalize(self._loan, end)
        self.end.atexit = False  # the process's end is the connection's

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        if self._copies is not None:
            self._copies.wait()
            self._copies = None
        self._loan = None

    def view(self, offset: int, size_bytes: int) -> memoryview:
        """Raises LeaseEnded."""
        if self._loan is None:
            raise LeaseEnded(f"the lease on job {self._job} has been released")
        return memoryview(self._loan)[offset:offset + size_bytes]

    def copy(self, source: torch.Tensor, destination: torch.Tensor, non_blocking: bool) -> None:
        from .device_copies import DeviceCopies

        if self._copies is None:
            self._copies = DeviceCopies(self._segment)
        self._copies.copy(source, destination, non_blocking)


class Lease:
    """Keeps a result's bytes as they are. A context manager: leaving it releases.

    The lease ends when it has been released and no view of its tensors is left, or with the reader's connection. So no
    view ever shows another result's bytes, as long as the reader is connected; but a forgotten view holds memory of the
    daemon. After the connection the bytes stay readable, and may change.
    """

    def __init__(self, segment: Segment, body: Json, end: Callable[[int], None]) -> None:
        """`body` answers an acquire; `end` gets the lease's number, once, from any thread, and does not raise. Raises
        ProtocolError for a body that cannot be."""
        number = get_count(body, "lease")
        self.job = get_count(body, "job")
        self._hold = Hold(segment, self.job, lambda: end(number))
        self.prompts = tuple(_prompt(self._hold, prompt, segment.size_bytes) for prompt in get_objects(body, "prompts"))

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def ended(self) -> bool:
        """Whether it has been released and no view is left."""
        return not self._hold.end.alive

    def release(self) -> None:
        """Waits for device copies under way; no view can be made after. Does not wait for the daemon. Idempotent."""
        self._hold.release()


def _prompt(hold: Hold, body: Json, segment_bytes: int) -> LeasedPrompt:
    if get_text(body, "status") != "ok":
        return LeasedPrompt(get_error(body))
    tensors = {tensor.name: tensor
               for tensor in (_tensor(hold, entry, segment_bytes) for entry in get_objects(body, "tensors"))}
    return LeasedPrompt(None, get_count(body, "tokens"), get_count(body, "padded_length"), get_flag(body, "truncated"),
                        MappingProxyType(tensors))


def _tensor(hold: Hold, body: Json, segment_bytes: int) -> LeasedTensor:
    tensor = LeasedTensor(hold, get_text(body, "name"), get_text(body, "dtype"), get_counts(body, "shape"),
                          get_count(body, "offset"), get_count(body, "bytes"))
    if tensor.dtype not in _NUMPY_TYPES:
        raise_protocol(f"tensor {tensor.name} has the unknown dtype {tensor.dtype}")
    item_bytes = _NUMPY_TYPES[tensor.dtype].itemsize
    if math.prod(tensor.shape) * item_bytes != tensor.size_bytes or tensor.size_bytes == 0:
        raise_protocol(f"tensor {tensor.name} has not the bytes of its shape")
    if tensor.offset + tensor.size_bytes > segment_bytes:
        raise_protocol(f"tensor {tensor.name} leaves the segment")
    if tensor.offset % item_bytes != 0:
        raise_protocol(f"tensor {tensor.name} is not aligned")
    return tensor
