"""Tensors in Python's standard library: reading safetensors, and comparing with a golden."""

import array
import json
import math
import operator
import struct
from dataclasses import dataclass
from pathlib import Path

ITEM_BYTES = {"F32": 4, "I32": 4, "I64": 8, "BF16": 2}


@dataclass
class Tensor:
    dtype: str
    shape: list
    data: bytes

    def values(self):
        """Its elements, flat, last axis fastest."""
        if self.dtype == "BF16":  # the upper half of an F32
            halves = array.array("H", self.data)
            return array.array("f", array.array("I", [half << 16 for half in halves]).tobytes())
        numbers = array.array({"F32": "f", "I32": "i", "I64": "q"}[self.dtype])
        numbers.frombytes(self.data)
        return numbers

    def rows(self):
        """Its last axis, one after the other."""
        numbers, width = self.values(), self.shape[-1]
        return [numbers[i:i + width] for i in range(0, len(numbers), width)]


def f32(shape, values):
    return Tensor("F32", list(shape), array.array("f", values).tobytes())


def read_safetensors(file):
    """All tensors of a file by name, and its metadata. Takes only what it knows: F32, BF16, I32 and I64, without a gap."""
    content = Path(file).read_bytes()
    (header_bytes,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + header_bytes])
    metadata = header.pop("__metadata__", {})
    data = content[8 + header_bytes:]
    tensors, filled = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        if begin != filled or end - begin != ITEM_BYTES[entry["dtype"]] * math.prod(entry["shape"]):
            raise ValueError(f"{file}: {name} is not where it should be: {entry}")
        tensors[name] = Tensor(entry["dtype"], entry["shape"], data[begin:end])
        filled = end
    if filled != len(data):
        raise ValueError(f"{file}: {len(data) - filled} bytes too many")
    return tensors, metadata


def relative_l2(found, expected):
    """|found - expected| / |expected|; infinity for anything but zeros where zeros are expected, and for NaN."""
    difference = math.hypot(*map(operator.sub, found, expected))
    scale = math.hypot(*expected)
    if not (math.isfinite(difference) and math.isfinite(scale)):
        return math.inf
    if scale == 0:
        return 0.0 if difference == 0 else math.inf
    return difference / scale


def check_close(found, expected, limit, what, row_limit=None):
    """Relative L2 error of the whole at most `limit`, and of each row at most `row_limit`, the same unless given.

    Returns the error of the whole; raises AssertionError.
    """
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        raise AssertionError(f"{what}: is {found.dtype} {found.shape}, expected {expected.dtype} {expected.shape}")
    if len(found.data) != len(expected.data):
        raise AssertionError(f"{what}: has {len(found.data)} bytes, expected {len(expected.data)}")
    whole = relative_l2(found.values(), expected.values())
    if not whole <= limit:
        raise AssertionError(f"{what}: relative error {whole:.3g}, limit {limit:.3g}")
    row_limit = limit if row_limit is None else row_limit
    for row, (found_row, expected_row) in enumerate(zip(found.rows(), expected.rows())):
        error = relative_l2(found_row, expected_row)
        if not error <= row_limit:
            raise AssertionError(f"{what}: relative error {error:.3g} in row {row}, limit {row_limit:.3g}")
    return whole
