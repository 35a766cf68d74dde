"""Writes a Gemma 3 of random weights, as large as a test wants it. Quick, and the same bytes every time."""

import array
import json
import random
import shutil
import struct
import sys

from harness import TESTS, TINY, VOCABULARY

sys.path.insert(0, str(TESTS.parent / "scripts"))
from model_files import SafetensorsWriter, text_config, text_tensor_shapes, write_json  # noqa: E402

POOL_NUMBERS = 1 << 16
SEED = 20260713


def bf16(number):
    """Cut, not rounded: random numbers do not mind."""
    return struct.unpack("<I", struct.pack("<f", number))[0] >> 16


def write_random_model(folder, *, width=512, ffn=2048, layers=8, heads=8, kv_heads=4, head_size=64):
    """In the new folder `folder`, with the tokenizer of the tiny models. Returns the folder.

    All weights are cut out of one pool of random numbers, each tensor from elsewhere in it.
    """
    folder.mkdir()
    config = text_config(vocab_size=VOCABULARY, hidden_size=width, intermediate_size=ffn, num_hidden_layers=layers,
                         num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_size,
                         query_pre_attn_scalar=head_size, sliding_window=64, max_position_embeddings=4096)
    write_json(folder / "config.json", config)
    shutil.copy(TINY / "tokenizer.json", folder)
    generator = random.Random(SEED)
    spread = (3.0 / width) ** 0.5
    pool = array.array("H", (bf16(generator.uniform(-spread, spread)) for _ in range(POOL_NUMBERS))).tobytes()
    shapes = text_tensor_shapes(config)
    writer = SafetensorsWriter(folder / "model.safetensors", shapes)
    for name, shape in shapes.items():
        left = 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)
        begin = 2 * generator.randrange(POOL_NUMBERS)
        while left > 0:
            piece = pool[begin:begin + left]
            writer.write(name, piece)
            left -= len(piece)
            begin = 0
    writer.close()
    return folder


def copy_model(original, folder):
    """A copy in the new folder `folder`, which a test may spoil or take away. Returns the folder."""
    shutil.copytree(original, folder, ignore=shutil.ignore_patterns("golden*"))
    return folder


def silence(model, *ids):
    """Makes a model's tokens worth nothing to it: their logits are 0, and the largest of the others are far above."""
    for file in model.glob("*.safetensors"):
        with open(file, "r+b") as content:
            (size,) = struct.unpack("<Q", content.read(8))
            header = json.loads(content.read(size))
            for name, entry in header.items():
                if name.endswith("embed_tokens.weight"):
                    begin, end = entry["data_offsets"]
                    row = (end - begin) // entry["shape"][0]
                    for number in ids:
                        content.seek(8 + size + begin + number * row)
                        content.write(bytes(row))


def text_tensor_bytes(model):
    """Bytes of the text tensors in a model's files: what gemmad needs of them. The folder holds no goldens."""
    total = 0
    for file in model.glob("*.safetensors"):
        with open(file, "rb") as content:
            (size,) = struct.unpack("<Q", content.read(8))
            header = json.loads(content.read(size))
        for name, entry in header.items():
            if name != "__metadata__" and not is_vision(name):
                begin, end = entry["data_offsets"]
                total += end - begin
    return total


def is_vision(name):
    return "vision" in name or "multi_modal_projector" in name
