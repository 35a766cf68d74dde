"""A rank's output segment: shared memory that its owner alone writes, mapped here to be read."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
from typing import Any

import numpy as np

from .errors import ProtocolError

_MAGIC = b"GEMMADSG"
_LAYOUT_VERSION = 1
_MIN_BYTES = 8192                      # the header and one block
_HEADER = struct.Struct("=8sIIQiI")    # magic, version, header bytes, segment bytes, rank, reserved


class Segment:
    """Mapped as long as this object or any view of it lives, at one address. Read-only: who writes dies of SIGSEGV."""

    def __init__(self, fd: int, size_bytes: int, rank: int) -> None:
        """Does not keep `fd`. Raises ProtocolError for what is not that rank's segment."""
        _check_descriptor(fd, size_bytes)
        try:
            self._map = mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
        except (OSError, ValueError) as error:
            raise ProtocolError(f"the segment cannot be mapped: {error}") from error
        self._bytes = np.frombuffer(self._map, np.uint8)
        _check_header(self._map[:_HEADER.size], size_bytes, rank)
        self.rank = rank
        self.size_bytes = size_bytes
        self.address = int(self._bytes.ctypes.data)
        self._loan_type: Any = type("Loan", (ctypes.Array,), {"_type_": ctypes.c_ubyte, "_length_": size_bytes})

    def lend(self) -> Any:
        """Its bytes as a buffer that lives as long as any view of it, keeps the mapping, and can be watched by weakref.
        It claims to be writable, as some libraries ask for; it is not."""
        loan = self._loan_type.from_address(self.address)
        loan.segment = self
        return loan


def _check_descriptor(fd: int, size_bytes: int) -> None:
    try:
        real_bytes = os.fstat(fd).st_size
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise ProtocolError(f"the descriptor that came is no segment: {error}") from error
    if size_bytes < _MIN_BYTES or real_bytes != size_bytes:
        raise ProtocolError(f"the segment has {real_bytes} bytes, announced are {size_bytes}")
    if not seals & fcntl.F_SEAL_SHRINK:
        raise ProtocolError("the segment is not sealed: it could shrink under its readers")


def _check_header(header: bytes, size_bytes: int, rank: int) -> None:
    magic, version, _, header_segment_bytes, header_rank, _ = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise ProtocolError("the segment does not begin as one does")
    if version != _LAYOUT_VERSION:
        raise ProtocolError(f"the segment's layout has version {version}, this library knows {_LAYOUT_VERSION}")
    if (header_segment_bytes, header_rank) != (size_bytes, rank):
        raise ProtocolError(f"the segment's header is of rank {header_rank} and {header_segment_bytes} bytes, announced "
                            f"are rank {rank} and {size_bytes} bytes")
