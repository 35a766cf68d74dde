"""The comparison that features and embeddings are held to must fail where it should."""

import math
import unittest

import numpy

from arrays import array_of, check_array, check_arrays, relative_errors
from tensors import Tensor, check_close, f32

LIMIT = 2e-5
ROWS = numpy.array([[0.5, -1.0, 2.0], [3.0, -0.25, 1.5]])


def tensor(values):
    values = numpy.asarray(values)
    return f32(values.shape, values.reshape(-1))


class Comparison(unittest.TestCase):
    def refused(self, found, expected=ROWS, **limits):
        with self.assertRaises(AssertionError):
            check_array(found, expected, LIMIT, "tensor", **limits)

    def changed(self, row, column, value):
        values = ROWS.copy()
        values[row, column] = value
        return tensor(values)

    def test_accepts_equal_values_and_rounding(self):
        self.assertEqual(check_array(tensor(ROWS), ROWS, LIMIT, "tensor"), (0, 0))
        check_array(tensor(ROWS * 1.00001), ROWS, LIMIT, "tensor")

    def test_finds_the_errors_that_the_standard_library_finds(self):
        found = tensor(ROWS + numpy.array([[1e-6, 0, 0], [0, 2e-5, 0]]))
        whole, row = check_array(found, ROWS, LIMIT, "tensor")
        self.assertAlmostEqual(whole, check_close(found, tensor(ROWS), LIMIT, "tensor"), delta=1e-12)
        self.assertAlmostEqual(row, 2e-5 / math.hypot(*ROWS[1]), delta=1e-7)

    def test_sees_what_float32_would_not(self):
        expected = ROWS.copy()
        expected[1, 2] += 1e-9
        self.assertAlmostEqual(check_array(tensor(ROWS), expected, LIMIT, "tensor")[0], 1e-9 / numpy.linalg.norm(ROWS), 11)

    def test_refuses_a_larger_error(self):
        self.refused(tensor(ROWS * 1.0001))

    def test_refuses_nan_and_infinity(self):
        for wrong in (math.nan, math.inf, -math.inf):
            self.refused(self.changed(1, 2, wrong))
            expected = ROWS.copy()
            expected[0, 1] = wrong
            self.refused(tensor(ROWS), expected)
            self.refused(tensor(expected), expected)

    def test_refuses_all_zeros(self):
        self.refused(tensor(numpy.zeros((2, 3))))

    def test_refuses_one_sign_flipped(self):
        self.refused(self.changed(0, 0, -ROWS[0, 0]))

    def test_refuses_swapped_rows_and_a_row_too_late(self):
        self.refused(tensor(ROWS[::-1]))
        self.refused(tensor(numpy.roll(ROWS, 1, axis=0)))

    def test_refuses_one_wrong_row_among_large_ones(self):
        large = numpy.array([[1e6, 1e6], [1e-3, 0]])
        self.refused(tensor(large + [[0, 0], [1e-3, 0]]), large)
        self.refused(tensor(large * [[1], [0]]), large)

    def test_a_limit_for_rows_does_not_loosen_the_one_for_the_whole(self):
        self.refused(tensor(ROWS * 1.0001), row_limit=1)
        check_array(tensor(ROWS * 1.0001), ROWS, 1e-3, "tensor", row_limit=1e-3)
        with self.assertRaises(AssertionError):
            check_array(tensor(ROWS * 1.0001), ROWS, 1e-3, "tensor", row_limit=LIMIT)

    def test_refuses_another_shape_or_dtype_and_bytes_that_are_missing(self):
        data = tensor(ROWS).data
        for wrong in (Tensor("F32", [3, 2], data), Tensor("F32", [1, 2, 3], data), Tensor("I32", [2, 3], data),
                      Tensor("F32", [2, 3], data[:20])):
            self.refused(wrong)

    def test_zeros_equal_only_zeros(self):
        self.assertEqual(relative_errors(numpy.zeros(2), numpy.zeros(2)), 0)
        self.assertEqual(relative_errors(numpy.array([1e-30, 0]), numpy.zeros(2)), math.inf)

    def test_arrays_of_other_types(self):
        self.assertEqual(array_of(Tensor("BF16", [2], b"\x80\x3f\x00\xc0")).tolist(), [1.0, -2.0])


class Results(unittest.TestCase):
    def test_all_tensors_are_compared_and_all_must_be_there(self):
        good = {"a": tensor(ROWS), "b": tensor(2 * ROWS)}
        self.assertEqual(check_arrays(good, good, LIMIT, "result"), 0)
        for wrong in ({**good, "b": tensor(ROWS)}, {"a": good["a"]}, {**good, "c": good["a"]}):
            with self.assertRaises(AssertionError):
                check_arrays(wrong, good, LIMIT, "result")


if __name__ == "__main__":
    unittest.main()
