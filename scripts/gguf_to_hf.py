#!/usr/bin/env python3
"""Turns a Gemma 3 text GGUF into a Hugging Face directory: config.json, model.safetensors (bf16), tokenizer.json.

Needs the packages gguf and numpy. The folder appears complete or not at all.
"""

import argparse
import signal
import sys
import time
from pathlib import Path

from model_files import (IMAGE_SOFT_TOKEN, SPACE, SafetensorsWriter, published_directory, ranked_merges,
                         text_config, text_tensor_shapes, tokenizer_config, tokenizer_json, write_json)

CONTROL, USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type
ROWS_AT_ONCE = 8192           # bounds the memory that dequantizing takes

GGUF_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_feedforward_layernorm": "post_ffw_norm",
}


class ConversionError(Exception):
    """The GGUF is not one that this script understands."""


def gguf_name(name):
    """The GGUF's name of a Hugging Face tensor (text-only layout)."""
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    index, _, rest = name.removeprefix("model.layers.").partition(".")
    return f"blk.{index}.{GGUF_LAYER_NAMES[rest.removesuffix('.weight')]}.weight"


def is_norm(name):
    return name.removesuffix(".weight").endswith("norm")


def config_from_metadata(metadata, vocab_size):
    """config.json from the GGUF's keys. `metadata` maps a key to its value."""
    architecture = metadata.get("general.architecture")
    if architecture != "gemma3":
        raise ConversionError(f"general.architecture is {architecture!r}, but only 'gemma3' is converted")

    def need(key):
        if f"gemma3.{key}" not in metadata:
            raise ConversionError(f"key gemma3.{key} is missing")
        return metadata[f"gemma3.{key}"]

    def have(key, default):
        return metadata.get(f"gemma3.{key}", default)

    heads, width, layers = need("attention.head_count"), need("embedding_length"), need("block_count")
    size = have("attention.key_length", 256)
    factor = have("rope.scaling.factor", 1.0) if have("rope.scaling.type", "none") == "linear" else 1.0
    return text_config(
        vocab_size=vocab_size,
        hidden_size=width,
        intermediate_size=need("feed_forward_length"),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=need("attention.head_count_kv"),
        head_dim=size,
        # The GGUF does not say; the 27B (62 layers) alone scales by width / heads.
        query_pre_attn_scalar=width // heads if layers == 62 else size,
        sliding_window=have("attention.sliding_window", 512),
        max_position_embeddings=need("context_length"),
        # Stored as float32: 6 digits give the decimal number back.
        rms_norm_eps=float(f"{need('attention.layer_norm_rms_epsilon'):.6g}"),
        rope_theta=float(have("rope.freq_base", 1e6)),
        rope_local_theta=float(have("rope.freq_base_swa", 1e4)),
        rope_factor=float(factor) if factor != 1.0 else None,
        pad_token_id=metadata.get("tokenizer.ggml.padding_token_id", 0),
        eos_token_id=metadata.get("tokenizer.ggml.eos_token_id", 1),
        bos_token_id=metadata.get("tokenizer.ggml.bos_token_id", 2))


def tokenizer_from_metadata(tokens, scores, types):
    """tokenizer.json from the SentencePiece vocabulary that the GGUF carries.

    Control and user-defined pieces become added tokens. Their scores in the GGUF are a filler; SentencePiece
    gives them 0, the best. Runs of spaces are stored as spaces, and back they become U+2581.
    """
    fixed = [kind in (CONTROL, USER_DEFINED) for kind in types]
    pieces = [text.replace(" ", SPACE) if kind == USER_DEFINED else text for text, kind in zip(tokens, types)]
    if len(set(pieces)) != len(pieces):
        raise ConversionError("the vocabulary holds a piece twice")
    for text in ("<unk>", "<bos>"):
        if text not in pieces:
            raise ConversionError(f"the vocabulary lacks {text}")
    added = {index: pieces[index] for index, is_fixed in enumerate(fixed) if is_fixed or pieces[index] == "<unk>"}
    if "<start_of_image>" in added.values() and IMAGE_SOFT_TOKEN not in added.values():
        # Not in the SentencePiece model: every Gemma 3 release adds it behind the last piece.
        added[len(pieces)] = IMAGE_SOFT_TOKEN
    merges = ranked_merges(pieces, [0.0 if is_fixed else score for score, is_fixed in zip(scores, fixed)])
    return tokenizer_json(pieces, merges, added)


def to_bf16(values):
    """float32 array -> little-endian bf16 bytes, rounded to nearest even."""
    import numpy
    bits = numpy.ascontiguousarray(values, dtype="<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def convert_tensor(tensor, name, shape, write):
    """Dequantizes one GGUF tensor in blocks of rows and hands bf16 bytes to write(name, bytes)."""
    import numpy
    from gguf.quants import dequantize
    stored = tuple(int(extent) for extent in reversed(tensor.shape))
    if stored != shape:
        raise ConversionError(f"tensor {tensor.name} has shape {stored}, but the metadata gives {shape}")
    for start in range(0, shape[0], ROWS_AT_ONCE):
        # A copy, because dequantize passes a float32 view of the file through.
        values = numpy.array(dequantize(tensor.data[start:start + ROWS_AT_ONCE], tensor.tensor_type))
        if is_norm(name):
            values -= numpy.float32(1)  # the GGUF stores 1 + w
        if not numpy.isfinite(values).all():
            raise ConversionError(f"tensor {tensor.name} holds a value that is not finite")
        write(name, to_bf16(values))


class Progress:
    """One line on stderr, redrawn on a terminal and printed about every tenth elsewhere."""

    def __init__(self, total_bytes):
        self._total, self._done, self._next, self._start = total_bytes, 0, 0, time.monotonic()
        self._terminal = sys.stderr.isatty()

    def add(self, size_bytes):
        self._done += size_bytes
        percent = 100 * self._done // self._total
        if percent < self._next:
            return
        self._next = percent + 1 if self._terminal else percent - percent % 10 + 10
        line = (f"weights {percent:3d} %  {self._done >> 20} of {self._total >> 20} MiB"
                f"  {time.monotonic() - self._start:.1f} s")
        print(f"\r{line}" if self._terminal else line, end="" if self._terminal and percent < 100 else "\n",
              file=sys.stderr, flush=True)


def convert(source, target):
    from gguf import GGUFReader
    print(f"reading {source}", file=sys.stderr, flush=True)
    reader = GGUFReader(source)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    metadata = {key: field.contents() for key, field in reader.fields.items()}
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"):
        if key not in metadata:
            raise ConversionError(f"key {key} is missing")
    if "token_embd.weight" not in tensors:
        raise ConversionError("tensor token_embd.weight is missing")
    config = config_from_metadata(metadata, int(tensors["token_embd.weight"].shape[1]))
    shapes = text_tensor_shapes(config)
    names = {name: gguf_name(name) for name in shapes}
    missing = [name for name in names.values() if name not in tensors]
    surplus = sorted(set(tensors) - set(names.values()))
    if missing or surplus:
        raise ConversionError(f"missing tensors: {missing[:10] or 'none'}; unknown tensors: {surplus[:10] or 'none'}")

    with published_directory(target) as folder:
        write_json(folder / "config.json", config)
        write_json(folder / "generation_config.json",
                   {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")})
        tokenizer = tokenizer_config()
        if "tokenizer.chat_template" in metadata:
            tokenizer["chat_template"] = metadata["tokenizer.chat_template"]
        write_json(folder / "tokenizer_config.json", tokenizer)
        print("tokenizer", file=sys.stderr, flush=True)
        write_json(folder / "tokenizer.json",
                   tokenizer_from_metadata(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"],
                                           metadata["tokenizer.ggml.token_type"]), indent=None)
        writer = SafetensorsWriter(folder / "model.safetensors", shapes)
        progress = Progress(writer.size_bytes)

        def write(name, data):
            writer.write(name, data)
            progress.add(len(data))

        for name, shape in shapes.items():
            convert_tensor(tensors[names[name]], name, shape, write)
        writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, metavar="IN.gguf")
    parser.add_argument("target", type=Path, metavar="OUT_DIR", help="must not exist yet")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the half-written folder is removed
    try:
        convert(arguments.source, arguments.target)
    except ImportError as error:
        sys.exit(f"gguf_to_hf.py: {error}: install the packages gguf and numpy")
    except (ConversionError, OSError, ValueError) as error:
        sys.exit(f"gguf_to_hf.py: {arguments.source}: {error}")
    print(f"{arguments.target}: ready", file=sys.stderr)


if __name__ == "__main__":
    main()
