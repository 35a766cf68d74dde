#!/usr/bin/env python3
"""Makes a tiny Gemma 3 text model with random weights: a Hugging Face directory of about 2 MB.

Needs only Python's standard library. The same seed gives the same bytes. It is for trying gemmad and testing it:
the shapes, files and tokenizer are Gemma's, the embeddings mean nothing.
"""

import argparse
import array
import random
import string
import sys
from pathlib import Path

from model_files import (IMAGE_SOFT_TOKEN, SPACE, SafetensorsWriter, published_directory, ranked_merges, text_config,
                         text_tensor_shapes, tokenizer_config, tokenizer_json, write_json)

WORDS = ("the a an and of in on at to with over under into from is are was it its that this as by for camera slow shot "
         "wide close light sun sea city street woman man child dog cat rain snow night morning water forest red blue "
         "green gold white black walks runs turns looks falls moves").split()
LONGEST_RUN = 8  # of newlines, spaces or tabs that are one token


def vocabulary():
    """(pieces, scores, added): the vocabulary by id, its merge scores, and {id: text} of the added tokens."""
    fixed = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "[multimodal]", "<start_of_turn>", "<end_of_turn>",
             "<start_of_image>", "<end_of_image>", IMAGE_SOFT_TOKEN]
    fixed += ["\n" * count for count in range(1, LONGEST_RUN + 1)]
    fixed += [SPACE * count for count in range(2, LONGEST_RUN + 1)]
    fixed += ["\t" * count for count in range(1, LONGEST_RUN + 1)]
    byte_pieces = [f"<0x{value:02X}>" for value in range(256)]
    # Every prefix of a word is a piece, so that merges reach the word one letter after another.
    merged = {}
    for length in range(2, max(map(len, WORDS)) + 2):
        for word in WORDS:
            if len(word) + 1 >= length:
                merged[(SPACE + word)[:length]] = None
    letters = [SPACE] + list(string.ascii_letters + string.digits + string.punctuation)
    pieces = fixed + byte_pieces + list(merged) + letters
    scores = [0.0] * (len(fixed) + len(byte_pieces)) + [-1.0 - rank for rank in range(len(merged) + len(letters))]
    return pieces, scores, dict(enumerate(fixed))


def bf16_bytes(values):
    """Floats -> little-endian bf16, rounded to nearest even."""
    bits = array.array("I", array.array("f", values).tobytes())
    halves = array.array("H", ((bit + 0x7FFF + ((bit >> 16) & 1)) >> 16 for bit in bits))
    if sys.byteorder != "little":
        halves.byteswap()
    return halves.tobytes()


def random_tensor(generator, shape):
    """Uniform values; a matrix keeps the scale of what goes through it, a norm weight stays near 0."""
    spread = 0.25 if len(shape) == 1 else (3.0 / shape[-1]) ** 0.5
    count = shape[0] if len(shape) == 1 else shape[0] * shape[1]
    return bf16_bytes((2.0 * generator.random() - 1.0) * spread for _ in range(count))


def make(target, seed):
    pieces, scores, added = vocabulary()
    config = text_config(vocab_size=len(pieces), hidden_size=128, intermediate_size=256, num_hidden_layers=8,
                         num_attention_heads=4, num_key_value_heads=2, head_dim=32, query_pre_attn_scalar=32,
                         sliding_window=64, max_position_embeddings=4096)
    generator = random.Random(seed)
    with published_directory(target) as folder:
        write_json(folder / "config.json", config)
        write_json(folder / "tokenizer.json", tokenizer_json(pieces, ranked_merges(pieces, scores), added))
        write_json(folder / "tokenizer_config.json", tokenizer_config())
        shapes = text_tensor_shapes(config)
        writer = SafetensorsWriter(folder / "model.safetensors", shapes)
        for name, shape in shapes.items():
            writer.write(name, random_tensor(generator, shape))
        writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", type=Path, metavar="OUT_DIR", help="must not exist yet")
    parser.add_argument("--seed", type=int, default=1, help="of the weights (default 1)")
    arguments = parser.parse_args()
    try:
        make(arguments.target, arguments.seed)
    except OSError as error:
        sys.exit(f"make_tiny_model.py: {error}")


if __name__ == "__main__":
    main()
