#!/usr/bin/env python3
"""The weights that gemmad makes with "weights": "random", as a model.safetensors for other programs.

Bit for bit those of daemon/model/random_tensors.h, which has the formula: they depend on the seed, a tensor's name and
an element's index alone. Standard library only; with numpy it is about a hundred times as fast.
"""

import argparse
import array
import json
import math
import struct
import sys
from pathlib import Path

from model_files import SafetensorsWriter, text_config, text_tensor_shapes

try:
    import numpy
except ImportError:
    numpy = None

MASK = (1 << 64) - 1
STEP = 0x9e3779b97f4a7c15
FACTORS = (0xbf58476d1ce4e5b9, 0x94d049bb133111eb)
MEAN = 131070
SCALE = float.fromhex("0x1.1bc77ap-21")
ELEMENTS_AT_ONCE = 1 << 16  # few enough to stay in a cache
FILE_PREFIX = "model."      # before the canonical name, in the text-only layout


def mix(x):
    x = (x ^ x >> 30) * FACTORS[0] & MASK
    x = (x ^ x >> 27) * FACTORS[1] & MASK
    return x ^ x >> 31


def key(seed, name):
    """Of the tensor with the canonical name `name`."""
    text_hash = 0xcbf29ce484222325
    for byte in name.encode():
        text_hash = (text_hash ^ byte) * 0x100000001b3 & MASK
    return mix(mix(seed) ^ text_hash)


def bf16_bits(number):
    """Rounded to fp32, then to bf16: to nearest, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    return bits + 0x7fff + (bits >> 16 & 1) >> 16


def values_plain(seed, name, first, count):
    """Elements first .. first + count of a projection or the table: little-endian bf16, as bytes."""
    state = key(seed, name) + first * STEP
    found = array.array("H")
    for _ in range(count):
        state = state + STEP & MASK
        quarters = mix(state)
        total = (quarters & 0xffff) + (quarters >> 16 & 0xffff) + (quarters >> 32 & 0xffff) + (quarters >> 48)
        # In fp64 the product is exact: 18 bits times 24.
        found.append(bf16_bits((total - MEAN) * SCALE))
    if sys.byteorder == "big":
        found.byteswap()
    return found.tobytes()


def values_numpy(seed, name, first, count):
    """The same with numpy."""
    state = numpy.arange(1, count + 1, dtype=numpy.uint64)
    state *= numpy.uint64(STEP)
    state += numpy.uint64(key(seed, name) + first * STEP & MASK)
    for shift, factor in zip((30, 27), FACTORS):
        state ^= state >> numpy.uint64(shift)
        state *= numpy.uint64(factor)
    state ^= state >> numpy.uint64(31)
    total = sum((state >> numpy.uint64(shift)) & numpy.uint64(0xffff) for shift in (0, 16, 32, 48))
    centred = total.astype(numpy.int64) - MEAN
    bits = (centred.astype(numpy.float32) * numpy.float32(SCALE)).view(numpy.uint32)
    bits = (bits + numpy.uint32(0x7fff) + (bits >> numpy.uint32(16) & numpy.uint32(1))) >> numpy.uint32(16)
    return bits.astype("<u2").tobytes()


def tensor_pieces(seed, name, shape):
    """All bytes of the tensor with the canonical name `name`, in pieces. Norms (of one axis) are zeros."""
    make = values_plain if numpy is None else values_numpy
    size = math.prod(shape)
    for first in range(0, size, ELEMENTS_AT_ONCE):
        count = min(ELEMENTS_AT_ONCE, size - first)
        yield bytes(2 * count) if len(shape) == 1 else make(seed, name, first, count)


def write_weights(path, config, seed):
    """model.safetensors of a text model. `config`: config.json of a gemma3_text model, every size written out."""
    shapes = text_tensor_shapes(config)
    writer = SafetensorsWriter(path, shapes)
    for name, shape in shapes.items():
        for piece in tensor_pieces(seed, name.removeprefix(FILE_PREFIX), shape):
            writer.write(name, piece)
    writer.close()


def text_section(config):
    """The text model's keys of a config.json, those that it leaves out filled in as Gemma 3's defaults."""
    defaults = text_config(vocab_size=262208, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26,
                           num_attention_heads=8, num_key_value_heads=4, head_dim=256, query_pre_attn_scalar=256,
                           sliding_window=4096, max_position_embeddings=131072)
    return {**defaults, **config.get("text_config", config)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("config", type=Path, help="the model's config.json")
    parser.add_argument("output", type=Path, help="the safetensors file to write")
    parser.add_argument("--seed", type=int, default=1, help="weights_seed of the daemon (default 1)")
    arguments = parser.parse_args()
    write_weights(arguments.output, text_section(json.loads(arguments.config.read_text())), arguments.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
