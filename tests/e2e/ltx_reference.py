"""LTX-2's embeddings processor in float64, from its formulas alone, and small random checkpoints for it. Needs numpy.

    checkpoint = Checkpoint("ltx.safetensors")                       # or with a second file that has the projections
    features = checkpoint.features(states, "video")                  # states: one [n, D] array a hidden state
    embeddings = checkpoint.embeddings(features, "video", rows=1024)
    results = process("ltx.safetensors", states)                     # all four: "video_features", "audio_embeddings" ...

As in LTX-2's own float64 run, V1's count of elements and the rotary positions (frequencies, their product with the
position) are of float32. In one thing it differs: where a checkpoint asks for float32 frequencies, LTX-2's powers are
not always rounded correctly, which moves the embeddings of positions of max_pos 1 by up to 3e-6.
"""

import json
import math
import struct
from pathlib import Path

import numpy

EPS = 1e-6
REGISTERS = 128
CAPTION_KEYS = {"caption_proj_before_connector": True, "caption_projection_first_linear": False,
                "caption_proj_input_norm": False, "caption_projection_second_linear": False}


class SafetensorsFile:
    """One file's metadata, and its tensors as float64 arrays when they are asked for."""

    def __init__(self, path):
        self.path = Path(path)
        with open(self.path, "rb") as file:
            (header_bytes,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(header_bytes))
        self.metadata = header.pop("__metadata__", {})
        self.entries = header
        self.data_begin = 8 + header_bytes

    def __contains__(self, name):
        return name in self.entries

    def __getitem__(self, name):
        entry = self.entries[name]
        begin, end = entry["data_offsets"]
        with open(self.path, "rb") as file:
            file.seek(self.data_begin + begin)
            data = file.read(end - begin)
        return float64(data, entry["dtype"]).reshape(entry["shape"])


def float64(data, dtype):
    if dtype == "BF16":  # the upper half of an F32
        halves = numpy.frombuffer(data, "<u2").astype(numpy.uint32)
        return (halves << 16).view(numpy.float32).astype(numpy.float64)
    return numpy.frombuffer(data, {"F32": "<f4", "F16": "<f2", "I32": "<i4"}[dtype]).astype(numpy.float64)


def linear(x, weight, bias):
    return x @ weight.T + (0 if bias is None else bias)


def rms_norm(x):
    return x / numpy.sqrt(numpy.mean(x * x, axis=-1, keepdims=True) + EPS)


def gelu(x):
    return 0.5 * x * (1 + numpy.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def frequencies(width, is_double):
    """The width / 2 frequencies of rotary positions, float32."""
    count = width // 2
    if is_double:
        return (10000.0 ** numpy.linspace(0.0, 1.0, count) * math.pi / 2).astype(numpy.float32)
    # As torch counts in float32: the upper half from the end, with one rounding.
    step = float(numpy.float32(1) / numpy.float32(count - 1))
    index = numpy.arange(count, dtype=numpy.float64)
    exponents = numpy.where(index < count // 2, step * index, 1 - step * (count - 1 - index)).astype(numpy.float32)
    powers = (10000.0 ** exponents.astype(numpy.float64)).astype(numpy.float32)
    return powers * numpy.float32(math.pi) / numpy.float32(2)


def rope_tables(width, is_double, max_pos, rows):
    """Cosines and sines, [rows, width / 2] each."""
    times = numpy.float32(2) * (numpy.arange(rows, dtype=numpy.float32) / numpy.float32(max_pos)) - numpy.float32(1)
    angles = times[:, None] * frequencies(width, is_double)[None, :]
    assert angles.dtype == numpy.float32
    return numpy.cos(angles.astype(numpy.float64)), numpy.sin(angles.astype(numpy.float64))


def rotate(x, heads, tables, is_split):
    """x [S, C] with rotary positions."""
    rows, width = x.shape
    cosines, sines = tables
    if is_split:
        a, b = (x.reshape(rows, heads, 2, -1)[:, :, half] for half in (0, 1))
        cosines, sines = (table.reshape(rows, heads, -1) for table in tables)
        return numpy.stack([a * cosines - b * sines, b * cosines + a * sines], axis=2).reshape(rows, width)
    a, b = x[:, 0::2], x[:, 1::2]
    return numpy.stack([a * cosines - b * sines, b * cosines + a * sines], axis=2).reshape(rows, width)


def attention(q, k, v, heads):
    """Every row sees every row. [S, C] each."""
    rows, width = q.shape
    q, k, v = (part.reshape(rows, heads, -1).transpose(1, 0, 2) for part in (q, k, v))
    out = numpy.empty_like(v)
    for head in range(heads):
        scores = q[head] @ k[head].T / math.sqrt(width // heads)
        weights = numpy.exp(scores - scores.max(axis=-1, keepdims=True))
        out[head] = weights / weights.sum(axis=-1, keepdims=True) @ v[head]
    return out.transpose(1, 0, 2).reshape(rows, width)


class Checkpoint:
    """An LTX-2 file and, where the projections are in one of their own, a second one."""

    def __init__(self, path, projections=None):
        self.files = [SafetensorsFile(file) for file in (path, projections) if file is not None]
        self.config = json.loads(self.files[0].metadata["config"])["transformer"]
        found = {key: self.config[key] for key in CAPTION_KEYS if key in self.config}
        if found not in ({}, CAPTION_KEYS):
            raise ValueError(f"{path}: neither V1 nor V2: {found}")
        self.is_v2 = bool(found)

    def tensor(self, name, is_wanted=True):
        """A tensor as float64; None where it is not wanted."""
        if not is_wanted:
            return None
        return next(file for file in self.files if name in file)[name]

    def connector(self, key, modality):
        value = self.config.get(f"connector_{key}", {"num_attention_heads": 30, "attention_head_dim": 128,
                                                     "num_layers": 2}[key])
        return value if modality == "video" else self.config.get(f"audio_connector_{key}", value)

    def width(self, modality):
        return self.connector("num_attention_heads", modality) * self.connector("attention_head_dim", modality)

    def features(self, states, modality):
        """[n, C] of a prompt's hidden states, [n, D] each, in order."""
        stacked = numpy.stack([numpy.asarray(state, numpy.float64) for state in states], axis=-1)  # [n, D, L]
        rows, hidden_size, _ = stacked.shape
        if self.is_v2:
            mean_squares = numpy.mean(stacked * stacked, axis=1, keepdims=True)
            normed = stacked / numpy.sqrt(mean_squares + EPS) * math.sqrt(self.width(modality) / hidden_size)
        else:
            count = float(numpy.float32(rows * hidden_size))
            means = stacked.sum(axis=(0, 1)) / count
            normed = 8 * (stacked - means) / (stacked.max(axis=(0, 1)) - stacked.min(axis=(0, 1)) + EPS)
        name = "text_embedding_projection." + (f"{modality}_" if self.is_v2 else "") + "aggregate_embed."
        return linear(normed.reshape(rows, -1), self.tensor(name + "weight"), self.tensor(name + "bias", self.is_v2))

    def embeddings(self, features, modality, rows=1024):
        """[rows, C] of a prompt's features."""
        prefix = f"model.diffusion_model.{modality}_embeddings_connector."
        registers = self.tensor(prefix + "learnable_registers")
        assert registers.shape[0] == REGISTERS
        h = numpy.concatenate([features, registers[numpy.arange(len(features), rows) % REGISTERS]])
        tables = rope_tables(self.width(modality), self.config.get("frequencies_precision") == "float64",
                             self.config.get("connector_positional_embedding_max_pos", [1])[0], rows)
        for block in range(self.connector("num_layers", modality)):
            block_prefix = f"{prefix}transformer_1d_blocks.{block}."
            h = h + self.attend(rms_norm(h), block_prefix + "attn1.", modality, tables)
            h = h + self.feed(rms_norm(h), block_prefix + "ff.net.")
        return rms_norm(h)

    def linear(self, x, name, has_bias=True):
        return linear(x, self.tensor(name + ".weight"), self.tensor(name + ".bias", has_bias))

    def attend(self, x, prefix, modality, tables):
        heads = self.connector("num_attention_heads", modality)
        is_split = self.config.get("rope_type", "split") == "split"
        q, k = (rotate(rms_norm(self.linear(x, prefix + "to_" + part)) * self.tensor(prefix + part + "_norm.weight"),
                       heads, tables, is_split) for part in "qk")
        out = attention(q, k, self.linear(x, prefix + "to_v"), heads)
        if self.config.get("connector_apply_gated_attention", False):
            gates = 2 / (1 + numpy.exp(-self.linear(x, prefix + "to_gate_logits")))
            out = (out.reshape(len(out), heads, -1) * gates[:, :, None]).reshape(out.shape)
        return self.linear(out, prefix + "to_out.0")

    def feed(self, x, prefix):
        has_bias = self.config.get("connector_ff_bias", True)
        return self.linear(gelu(self.linear(x, prefix + "0.proj", has_bias)), prefix + "2", has_bias)


def process(path, states, rows=1024, projections=None):
    """{"video_features": [n, C], "video_embeddings": [rows, C], ... audio}, float64, of one prompt's hidden states."""
    checkpoint = Checkpoint(path, projections)
    results = {}
    for modality in ("video", "audio"):
        features = checkpoint.features(states, modality)
        results[f"{modality}_features"] = features
        results[f"{modality}_embeddings"] = checkpoint.embeddings(features, modality, rows)
    return results


def bf16_bytes(values):
    """Rounded to nearest, ties to even."""
    bits = numpy.ascontiguousarray(values, dtype="<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def write_safetensors(path, tensors, metadata):
    """`tensors`: {name: float array}, stored as BF16."""
    header, data = {"__metadata__": metadata} if metadata else {}, []
    end = 0
    for name, values in tensors.items():
        data.append(bf16_bytes(values))
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [end, end + len(data[-1])]}
        end += len(data[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def transformer_config(is_v2, video, audio, gated, ff_bias, rope_type, is_double, max_pos):
    """The config of a checkpoint. `video`, `audio`: (heads, head_dim, layers)."""
    config = {"rope_type": rope_type, "connector_positional_embedding_max_pos": [max_pos]}
    for prefix, (heads, head_dim, layers) in (("", video), ("audio_", audio)):
        config |= {f"{prefix}connector_num_attention_heads": heads, f"{prefix}connector_attention_head_dim": head_dim,
                   f"{prefix}connector_num_layers": layers}
        if is_v2:
            config |= {f"{prefix}num_attention_heads": heads, f"{prefix}attention_head_dim": head_dim}
    if is_v2:
        config |= CAPTION_KEYS
    if is_double:
        config["frequencies_precision"] = "float64"
    if gated:
        config["connector_apply_gated_attention"] = True
    if not ff_bias:
        config["connector_ff_bias"] = False
    return config


def tensor_shapes(is_v2, hidden_size, num_states, video, audio, gated, ff_bias):
    """{name: shape} of a checkpoint's tensors."""
    shapes = {}

    def add(name, outputs, inputs, has_bias):
        shapes[name + ".weight"] = (outputs, inputs)
        if has_bias:
            shapes[name + ".bias"] = (outputs,)

    for modality, (heads, head_dim, layers) in (("video", video), ("audio", audio)):
        width = heads * head_dim
        name = f"text_embedding_projection.{f'{modality}_' if is_v2 else ''}aggregate_embed"
        add(name, width, hidden_size * num_states, is_v2)
        prefix = f"model.diffusion_model.{modality}_embeddings_connector."
        shapes[prefix + "learnable_registers"] = (REGISTERS, width)
        for block in range(layers):
            block_prefix = f"{prefix}transformer_1d_blocks.{block}."
            for part in ("to_q", "to_k", "to_v", "to_out.0"):
                add(f"{block_prefix}attn1.{part}", width, width, True)
            for part in "qk":
                shapes[f"{block_prefix}attn1.{part}_norm.weight"] = (width,)
            if gated:
                add(block_prefix + "attn1.to_gate_logits", heads, width, True)
            add(block_prefix + "ff.net.0.proj", 4 * width, width, ff_bias)
            add(block_prefix + "ff.net.2", width, 4 * width, ff_bias)
    return shapes


def random_tensor(generator, name, shape):
    """Of such a size that activations keep theirs, and that every part of the processor shows."""
    values = generator.standard_normal(shape)
    if name.endswith("_norm.weight"):
        return 1 + 0.2 * values
    if name.endswith("learnable_registers"):
        return values
    return values * (0.3 if len(shape) == 1 else shape[1] ** -0.5)


def make_checkpoint(path, hidden_size, num_states, is_v2=True, video=(2, 32, 2), audio=None, gated=None, ff_bias=True,
                    rope_type="split", is_double=True, max_pos=4096, model_version=None, gemma_version=None, seed=1,
                    projections=None, extra_metadata=None):
    """Writes a random checkpoint for a Gemma of `num_states` hidden states (layers + 1) `hidden_size` wide.

    `video`, `audio` (video's unless given): (heads, head_dim, layers) of the connectors; V1's are hidden_size wide.
    `gated`: as V2 is unless given. `model_version`: "2.0.0" or, V2, "2.3.0" unless given. `gemma_version`: of the Gemma
    that it names as its own. `projections`: a second file, for the projections. The same seed gives the same bytes.
    """
    audio = audio or video
    gated = is_v2 if gated is None else gated
    if not is_v2 and any(heads * head_dim != hidden_size for heads, head_dim, _ in (video, audio)):
        raise ValueError(f"V1's connectors must be {hidden_size} wide, as the hidden states: {video}, {audio}")
    config = transformer_config(is_v2, video, audio, gated, ff_bias, rope_type, is_double, max_pos)
    metadata = {"config": json.dumps({"transformer": config}),
                "model_version": model_version or ("2.3.0" if is_v2 else "2.0.0")}
    if gemma_version:
        metadata["gemma_source_checkpoint"] = json.dumps({"gemma_version": gemma_version})
    generator = numpy.random.Generator(numpy.random.PCG64(seed))
    shapes = tensor_shapes(is_v2, hidden_size, num_states, video, audio, gated, ff_bias)
    tensors = {name: random_tensor(generator, name, shape) for name, shape in shapes.items()}
    if projections:
        apart = {name: tensors.pop(name) for name in list(tensors) if name.startswith("text_embedding_projection.")}
        write_safetensors(projections, apart, {"format": "pt"})
    write_safetensors(path, tensors, metadata | (extra_metadata or {}))
