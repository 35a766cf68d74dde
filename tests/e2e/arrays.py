"""Tensors as arrays of float64, and comparing with such: as tensors.py does, quickly for many numbers. Needs numpy."""

import math

import numpy


def array_of(tensor):
    """Its elements, float64."""
    return numpy.asarray(tensor.values(), numpy.float64).reshape(tensor.shape)


def relative_errors(found, expected, axis=None):
    """As relative_l2: of the whole, or along an axis; infinity for NaN, and for what is not zero where zeros are expected."""
    with numpy.errstate(invalid="ignore", over="ignore", divide="ignore"):
        difference = numpy.sqrt(numpy.sum(numpy.square(found - expected), axis=axis))
        scale = numpy.sqrt(numpy.sum(numpy.square(expected), axis=axis))
        error = numpy.where(difference == 0, 0.0, difference / scale)
    return numpy.where(numpy.isfinite(difference) & numpy.isfinite(scale), error, math.inf)


def check_array(found, expected, limit, what, row_limit=None):
    """A tensor of F32 against an array: errors of the whole and of each row as check_close holds them to their limits.

    Returns both errors; raises AssertionError.
    """
    if (found.dtype, list(found.shape)) != ("F32", list(expected.shape)):
        raise AssertionError(f"{what}: is {found.dtype} {found.shape}, expected F32 {list(expected.shape)}")
    if len(found.data) != 4 * expected.size:
        raise AssertionError(f"{what}: has {len(found.data)} bytes, expected {4 * expected.size}")
    values = array_of(found)
    whole = float(relative_errors(values, expected))
    if not whole <= limit:
        raise AssertionError(f"{what}: relative error {whole:.3g}, limit {limit:.3g}")
    row_limit = limit if row_limit is None else row_limit
    errors = relative_errors(values, expected, axis=-1).reshape(-1)
    row = int(numpy.argmax(errors))
    if not errors[row] <= row_limit:
        raise AssertionError(f"{what}: relative error {errors[row]:.3g} in row {row}, limit {row_limit:.3g}")
    return whole, float(errors[row])


def check_arrays(tensors, expected, limit, what):
    """All tensors of a result, and each of their rows, within `limit` of another one's. Returns the largest error."""
    if sorted(tensors) != sorted(expected):
        raise AssertionError(f"{what}: has {sorted(tensors)}, expected {sorted(expected)}")
    return max((max(check_array(tensors[name], array_of(tensor), limit, f"{what}: {name}"))
                for name, tensor in expected.items()), default=0.0)
