"""Writing a Gemma 3 text model as a Hugging Face directory. Standard library only."""

import contextlib
import json
import os
import shutil
import struct
import tempfile
from pathlib import Path

IMAGE_SOFT_TOKEN = "<image_soft_token>"
# What decoders leave out when told to skip special tokens. Encoding does not look at this.
SPECIAL_TOKENS = frozenset(
    ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>",
     "<start_of_image>", "<end_of_image>", IMAGE_SOFT_TOKEN])
SPACE = "\u2581"


def text_tensor_shapes(config):
    """Names (text-only layout) and shapes of all tensors of a Gemma 3 text model, in file order."""
    width, ffn, size = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    query, kv = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], width)}
    for index in range(config["num_hidden_layers"]):
        layer = {
            "input_layernorm": (width,),
            "self_attn.q_proj": (query, width),
            "self_attn.k_proj": (kv, width),
            "self_attn.v_proj": (kv, width),
            "self_attn.o_proj": (width, query),
            "self_attn.q_norm": (size,),
            "self_attn.k_norm": (size,),
            "post_attention_layernorm": (width,),
            "pre_feedforward_layernorm": (width,),
            "mlp.gate_proj": (ffn, width),
            "mlp.up_proj": (ffn, width),
            "mlp.down_proj": (width, ffn),
            "post_feedforward_layernorm": (width,),
        }
        shapes.update({f"model.layers.{index}.{name}.weight": shape for name, shape in layer.items()})
    shapes["model.norm.weight"] = (width,)
    return shapes


def text_config(*, vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
                num_key_value_heads, head_dim, query_pre_attn_scalar, sliding_window, max_position_embeddings,
                rms_norm_eps=1e-6, rope_theta=1e6, rope_local_theta=1e4, rope_factor=None, pattern=6,
                pad_token_id=0, eos_token_id=1, bos_token_id=2):
    """config.json of a gemma3_text model, every field written out. Each `pattern`-th layer attends globally."""
    full = {"rope_type": "default", "rope_theta": rope_theta}
    if rope_factor is not None:
        full = {"rope_type": "linear", "factor": rope_factor, "rope_theta": rope_theta}
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "dtype": "bfloat16",
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "num_hidden_layers": num_hidden_layers,
        "num_attention_heads": num_attention_heads,
        "num_key_value_heads": num_key_value_heads,
        "head_dim": head_dim,
        "query_pre_attn_scalar": query_pre_attn_scalar,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": max_position_embeddings,
        "rms_norm_eps": rms_norm_eps,
        "sliding_window": sliding_window,
        "_sliding_window_pattern": pattern,
        "layer_types": ["full_attention" if (layer + 1) % pattern == 0 else "sliding_attention"
                        for layer in range(num_hidden_layers)],
        "rope_parameters": {"full_attention": full,
                            "sliding_attention": {"rope_type": "default", "rope_theta": rope_local_theta}},
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "use_bidirectional_attention": False,
        "tie_word_embeddings": True,
        "use_cache": True,
        "initializer_range": 0.02,
        "pad_token_id": pad_token_id,
        "eos_token_id": eos_token_id,
        "bos_token_id": bos_token_id,
    }


def ranked_merges(pieces, scores):
    """All splits of a piece into two pieces, best first: [(left, right)].

    pieces: the vocabulary, the index being the id; scores: one a piece, higher is merged earlier.
    Among equal scores the longer left part comes first, then the longer right part, then the lower ids.
    """
    ids = {piece: index for index, piece in enumerate(pieces)}
    found = []
    for index, piece in enumerate(pieces):
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in ids and right in ids:
                found.append((-scores[index], -len(left), -len(right), index, left, right))
    found.sort(key=lambda merge: merge[:4])
    return [(merge[4], merge[5]) for merge in found]


def tokenizer_json(pieces, merges, added):
    """tokenizer.json of a Gemma 3 vocabulary, as a dict.

    pieces: [text], the index being the id; merges: [(left, right)] by rank; added: {id: text} of the tokens
    that are matched in the raw text. `pieces` must hold <unk> and <bos>.
    """
    bos = {"SpecialToken": {"id": "<bos>", "type_id": 0}}
    single = [bos, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = single + [{"SpecialToken": {"id": "<bos>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": text in SPECIAL_TOKENS}
                         for index, text in sorted(added.items())],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                          "invert": False},
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": pair,
                           "special_tokens": {"<bos>": {"id": "<bos>", "ids": [pieces.index("<bos>")],
                                                        "tokens": ["<bos>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": {piece: index for index, piece in enumerate(pieces)},
                  "merges": [list(merge) for merge in merges]},
    }


def tokenizer_config():
    """tokenizer_config.json: the few keys that Hugging Face needs to pick its class."""
    return {"tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>",
            "unk_token": "<unk>", "add_bos_token": True, "add_eos_token": False}


class SafetensorsWriter:
    """Writes bf16 tensors to one file, each piece by piece, in the order of `shapes`.

    shapes: {name: (rows, columns) or (size,)}. The file is complete when close() returns; close() raises
    ValueError if a tensor is missing or short.
    """

    def __init__(self, path, shapes):
        self._left = {}
        header = {"__metadata__": {"format": "pt"}}
        offset = 0
        for name, shape in shapes.items():
            size_bytes = 2
            for extent in shape:
                size_bytes *= extent
            header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size_bytes]}
            offset += size_bytes
            self._left[name] = size_bytes
        self.size_bytes = offset
        self._names = iter(shapes)
        self._current = None
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._file = open(path, "wb")
        self._file.write(struct.pack("<Q", len(text)) + text)

    def write(self, name, data):
        """Appends bytes (little-endian bf16) to tensor `name`; tensors come in the order of the header."""
        if name != self._current:
            self._check_current()
            expected = next(self._names, None)
            if name != expected:
                raise ValueError(f"tensor {name} is out of order: {expected} is next")
            self._current = name
        if len(data) > self._left[name]:
            raise ValueError(f"tensor {name} gets {len(data)} bytes, but {self._left[name]} are left")
        self._left[name] -= len(data)
        self._file.write(data)

    def close(self):
        try:
            self._check_current()
            missing = next(self._names, None)
            if missing is not None:
                raise ValueError(f"tensor {missing} was never written")
            self._file.flush()
            os.fsync(self._file.fileno())
        finally:
            self._file.close()

    def _check_current(self):
        if self._current is not None and self._left[self._current]:
            raise ValueError(f"tensor {self._current} lacks {self._left[self._current]} bytes")


def write_json(path, value, indent=2):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=indent,
                  separators=(",", ": ") if indent else (",", ":"))
        file.write("\n")


@contextlib.contextmanager
def published_directory(target):
    """Yields a temporary folder beside `target`, and renames it to `target` when the block ends well.

    Raises FileExistsError if `target` is there already. On any exception nothing is left behind.
    """
    target = Path(target)
    if target.exists():
        raise FileExistsError(f"{target} exists already: remove it, or name another folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
    try:
        yield partial
        partial.chmod(0o755)
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
