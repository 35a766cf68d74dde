"""The comparison that the goldens are held to must fail where it should."""

import json
import math
import struct
import tempfile
import unittest
from pathlib import Path

from tensors import Tensor, check_close, f32, read_safetensors, relative_l2

LIMIT = 2e-5
VALUES = [0.5, -1.0, 2.0, 3.0, -0.25, 1.5]


class Comparison(unittest.TestCase):
    def refused(self, found, expected=None):
        with self.assertRaises(AssertionError):
            check_close(found, expected or f32([2, 3], VALUES), LIMIT, "tensor")

    def test_accepts_equal_values_and_rounding(self):
        self.assertEqual(check_close(f32([2, 3], VALUES), f32([2, 3], VALUES), LIMIT, "tensor"), 0)
        check_close(f32([2, 3], [value * 1.00001 for value in VALUES]), f32([2, 3], VALUES), LIMIT, "tensor")

    def test_refuses_a_larger_error(self):
        self.refused(f32([2, 3], [value * 1.0001 for value in VALUES]))

    def test_refuses_nan_and_infinity(self):
        for wrong in (math.nan, math.inf, -math.inf):
            self.refused(f32([2, 3], VALUES[:5] + [wrong]))

    def test_refuses_a_golden_that_is_not_finite(self):
        self.refused(f32([2, 3], VALUES), f32([2, 3], VALUES[:5] + [math.nan]))

    def test_refuses_all_zeros(self):
        self.refused(f32([2, 3], [0.0] * 6))

    def test_refuses_one_sign_flipped(self):
        self.refused(f32([2, 3], [-VALUES[0]] + VALUES[1:]))

    def test_refuses_swapped_rows(self):
        self.refused(f32([2, 3], VALUES[3:] + VALUES[:3]))

    def test_refuses_one_wrong_row_among_large_ones(self):
        large = [1e6, 1e6, 1e6]
        self.refused(f32([2, 3], large + [2e-3, 0, 0]), f32([2, 3], large + [1e-3, 0, 0]))

    def test_a_limit_for_rows_does_not_loosen_the_one_for_the_whole(self):
        wrong = f32([2, 3], [value * 1.0001 for value in VALUES])
        with self.assertRaises(AssertionError):
            check_close(wrong, f32([2, 3], VALUES), LIMIT, "tensor", row_limit=1)
        check_close(wrong, f32([2, 3], VALUES), 1e-3, "tensor", row_limit=1e-3)
        with self.assertRaises(AssertionError):
            check_close(wrong, f32([2, 3], VALUES), 1e-3, "tensor", row_limit=LIMIT)

    def test_refuses_another_shape_or_dtype_of_the_same_bytes(self):
        self.refused(f32([3, 2], VALUES))
        self.refused(f32([1, 2, 3], VALUES))
        self.refused(Tensor("I32", [2, 3], f32([2, 3], VALUES).data))

    def test_refuses_bytes_that_are_missing(self):
        self.refused(Tensor("F32", [2, 3], f32([2, 3], VALUES).data[:20]))

    def test_zeros_equal_only_zeros(self):
        self.assertEqual(relative_l2([0.0], [0.0]), 0)
        self.assertEqual(relative_l2([1e-30], [0.0]), math.inf)


class ReadingSafetensors(unittest.TestCase):
    def read(self, header, data):
        text = json.dumps(header).encode()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "x.safetensors"
            file.write_bytes(struct.pack("<Q", len(text)) + text + data)
            return read_safetensors(file)

    def test_gives_tensors_and_metadata(self):
        tensors, metadata = self.read({"a": {"dtype": "I32", "shape": [2], "data_offsets": [0, 8]},
                                       "__metadata__": {"k": "v"}}, struct.pack("<2i", 7, -1))
        self.assertEqual(list(tensors["a"].values()), [7, -1])
        self.assertEqual(metadata, {"k": "v"})

    def test_refuses_gaps_and_bytes_too_many(self):
        entry = {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}
        with self.assertRaises(ValueError):
            self.read({"a": entry}, bytes(8))
        with self.assertRaises(ValueError):
            self.read({"a": {**entry, "data_offsets": [0, 4]}}, bytes(8))


if __name__ == "__main__":
    unittest.main()
