"""Holds the daemon's features and embeddings of LTX-2 against float64, with the error of LTX-2's own bf16 as the measure.

Both are computed here in PyTorch, from the hidden states that the daemon gave in the same request: what Gemma's errors
come to is no matter. Checkpoints are random, in the sizes of the published ones. Needs torch, safetensors and numpy.
"""

import json
import math
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from gpu_daemon import ANSWER_S, LAYERS_12B, GpuDaemon, config_12b
from harness import Client
from ltx_reference import EPS, REGISTERS, rope_tables, tensor_shapes, transformer_config
from model_files import text_config
from modes import encode_everywhere, random_prompt
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

LIMIT, ROW_LIMIT = 1.15, 4.0          # times LTX-2's error: of all rows together, and of the worst row
F32_LIMIT, F32_ROW_LIMIT = 2e-6, 1e-5  # of a daemon that computes in fp32
LENGTHS = (1, 128, 1000)
ROWS = 1024
MAX_POS = 4096
SCORES = 1.5  # times the norms of queries and keys: a row then looks at some of the others, not at their mean
SEGMENT_MIB = 2048
MODALITIES = ("video", "audio")
OUTPUTS = tuple(f"{kind}.{modality}" for kind in ("features", "embeddings") for modality in MODALITIES)
DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32}

Tensors = dict[str, torch.Tensor]
Heads = tuple[int, int, int]  # of a connector: heads, their size, blocks


@dataclass(frozen=True)
class Version:
    """An LTX-2 checkpoint's embeddings processor."""

    name: str
    is_v2: bool
    video: Heads
    audio: Heads

    def heads(self, modality: str) -> Heads:
        return self.video if modality == "video" else self.audio

    def width(self, modality: str) -> int:
        heads, size, _ = self.heads(modality)
        return heads * size

    def projection(self, modality: str) -> str:
        return f"text_embedding_projection.{f'{modality}_' if self.is_v2 else ''}aggregate_embed"

    def metadata(self) -> dict[str, str]:
        config = transformer_config(self.is_v2, self.video, self.audio, gated=self.is_v2, ff_bias=True,
                                    rope_type="split", is_double=True, max_pos=MAX_POS)
        return {"config": json.dumps({"transformer": config}), "model_version": "2.3.0" if self.is_v2 else "2.0.0"}

    def shapes(self, hidden_size: int, num_states: int) -> dict[str, tuple[int, ...]]:
        return tensor_shapes(self.is_v2, hidden_size, num_states, self.video, self.audio, gated=self.is_v2, ff_bias=True)


PUBLISHED = (Version("ltx-2", False, (30, 128, 2), (30, 128, 2)), Version("ltx-2.3", True, (32, 128, 8), (32, 64, 8)))


def thin_config() -> dict:
    """A Gemma that gives hidden states of the 12B's number and width, and is quickly made."""
    return {**config_12b(LAYERS_12B), "vocab_size": 8192, "intermediate_size": 2048, "num_attention_heads": 4,
            "num_key_value_heads": 2}


def tiny_config() -> dict:
    return text_config(vocab_size=512, hidden_size=96, intermediate_size=192, num_hidden_layers=5,
                       num_attention_heads=4, num_key_value_heads=2, head_dim=32, query_pre_attn_scalar=32,
                       sliding_window=64, max_position_embeddings=4096)


# Gemma's config (None: the caller's, with the 12B's layers), and checkpoints for it.
SCALES = {
    "full": (None, PUBLISHED),
    "thin": (thin_config, PUBLISHED),
    "tiny": (tiny_config, (Version("ltx-2", False, (3, 32, 2), (6, 16, 2)),
                           Version("ltx-2.3", True, (4, 32, 3), (4, 16, 3)))),
}


def random_tensor(generator: torch.Generator, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """bf16, of such a size that activations keep theirs."""
    values = torch.randn(shape, generator=generator, device=generator.device, dtype=torch.bfloat16)
    if name.endswith("_norm.weight"):
        return (values * 0.2 + 1) * SCORES
    if name.endswith("learnable_registers"):
        return values
    return values * (0.3 if len(shape) == 1 else shape[1] ** -0.5)


def make_checkpoint(file: Path, version: Version, hidden_size: int, num_states: int, seed: int, device: str) -> None:
    generator = torch.Generator(device).manual_seed(seed)
    tensors = {name: random_tensor(generator, name, shape).cpu()
               for name, shape in version.shapes(hidden_size, num_states).items()}
    save_file(tensors, file, version.metadata())


class Processor:
    """The embeddings processor in the steps of LTX-2 in PyTorch, each rounded to `dtype`. `weights` by a checkpoint's names.

    In float64 too, the count of V1's elements and the angles of rotary positions are of float32, as LTX-2 has them.
    """

    def __init__(self, version: Version, weights: Tensors, dtype: torch.dtype, rows: int = ROWS):
        self.version = version
        self.weights = weights
        self.dtype = dtype
        self.rows = rows

    @torch.inference_mode()
    def outputs(self, states: list[torch.Tensor]) -> list[torch.Tensor]:
        """OUTPUTS of one prompt, of its hidden states [n, D]."""
        features = [self.features(states, modality) for modality in MODALITIES]
        return features + [self.embeddings(*pair) for pair in zip(features, MODALITIES)]

    def weight(self, name: str) -> torch.Tensor | None:
        tensor = self.weights.get(name)
        return None if tensor is None else tensor.to(self.dtype)

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self.weight(name + ".weight"), self.weight(name + ".bias"))

    @staticmethod
    def norm(x: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        return F.rms_norm(x, x.shape[-1:], weight, EPS)

    def features(self, states: list[torch.Tensor], modality: str) -> torch.Tensor:
        stacked = torch.stack([state.to(self.dtype) for state in states], -1)  # [n, D, L]
        rows = stacked.shape[0]
        normed = self.rescaled(stacked, modality) if self.version.is_v2 else self.ranged(stacked)
        # LTX-2's products have the rows of a padded prompt, of which the first are zeros.
        padded = F.pad(normed.reshape(rows, -1), (0, 0, self.rows - rows, 0))
        return self.linear(padded, self.version.projection(modality))[self.rows - rows:]

    def ranged(self, stacked: torch.Tensor) -> torch.Tensor:
        """V1: a prompt's hidden states by their ranges."""
        rows, width, _ = stacked.shape
        count = torch.tensor([rows * width], device=stacked.device).to(torch.float32)
        means = stacked.sum((0, 1)) / count
        ranges = stacked.amax((0, 1)) - stacked.amin((0, 1)) + EPS
        return (8 * (stacked - means) / ranges).to(self.dtype)

    def rescaled(self, stacked: torch.Tensor, modality: str) -> torch.Tensor:
        """V2: each token by its root mean square."""
        normed = stacked * torch.rsqrt(stacked.square().mean(1, keepdim=True) + EPS)
        return normed * math.sqrt(self.version.width(modality) / stacked.shape[1])

    def embeddings(self, features: torch.Tensor, modality: str) -> torch.Tensor:
        _, _, blocks = self.version.heads(modality)
        prefix = f"model.diffusion_model.{modality}_embeddings_connector."
        places = torch.arange(len(features), self.rows, device=features.device) % REGISTERS
        h = torch.cat((features, self.weight(prefix + "learnable_registers")[places]))
        tables = self.rotation(modality, features.device)
        for block in range(blocks):
            part = f"{prefix}transformer_1d_blocks.{block}."
            h = self.attended(self.norm(h), part + "attn1.", modality, tables) + h
            inner = F.gelu(self.linear(self.norm(h), part + "ff.net.0.proj"), approximate="tanh")
            h = self.linear(inner, part + "ff.net.2") + h
        return self.norm(h)

    def rotation(self, modality: str, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines, [rows, heads, half a head] each. LTX-2 takes them in float32."""
        heads, _, _ = self.version.heads(modality)
        tables = rope_tables(self.version.width(modality), True, MAX_POS, self.rows)
        narrow = torch.float64 if self.dtype == torch.float64 else torch.float32
        cos, sin = (torch.from_numpy(table).to(narrow).to(device, self.dtype).view(self.rows, heads, -1)
                    for table in tables)
        return cos, sin

    @staticmethod
    def rotated(x: torch.Tensor, tables: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """x [rows, heads, size]."""
        cos, sin = tables
        low, high = x.chunk(2, dim=-1)
        return torch.cat((torch.addcmul(low * cos, sin, high, value=-1), torch.addcmul(high * cos, sin, low)), dim=-1)

    def attended(self, x: torch.Tensor, prefix: str, modality: str, tables: tuple) -> torch.Tensor:
        heads, size, _ = self.version.heads(modality)
        query, key = (self.norm(self.linear(x, f"{prefix}to_{part}"), self.weight(f"{prefix}{part}_norm.weight"))
                      for part in "qk")
        query, key = (self.rotated(part.view(self.rows, heads, size), tables) for part in (query, key))
        value = self.linear(x, prefix + "to_v").view(self.rows, heads, size)
        # LTX-2 passes a mask of zeros, which changes nothing.
        mixed = F.scaled_dot_product_attention(*(part.transpose(0, 1)[None] for part in (query, key, value)))
        mixed = mixed[0].transpose(0, 1)
        if prefix + "to_gate_logits.weight" in self.weights:
            mixed = mixed * (2 * torch.sigmoid(self.linear(x, prefix + "to_gate_logits")))[:, :, None]
        return self.linear(mixed.reshape(self.rows, -1), prefix + "to_out.0")


@dataclass(frozen=True)
class Deviation:
    """Relative L2 errors of an output: of all rows of all prompts together, and of the worst row. Not finite: infinity."""

    whole: float
    row: float

    def over(self, measure: "Deviation") -> "Deviation":
        return Deviation(ratio(self.whole, measure.whole), ratio(self.row, measure.row))


def ratio(error: float, measure: float) -> float:
    if error == 0:
        return 0.0
    return error / measure if measure > 0 else math.inf


def deviation(found: list[torch.Tensor], expected: list[torch.Tensor]) -> Deviation:
    """Of one output. The tensors of each prompt are [rows, C]."""
    off, scale = [], []
    for one, other in zip(found, expected, strict=True):
        if one.shape != other.shape:
            raise AssertionError(f"found {tuple(one.shape)}, expected {tuple(other.shape)}")
        wide = other.double()
        off.append((one.to(wide.device).double() - wide).square().sum(-1))
        scale.append(wide.square().sum(-1))
    off, scale = torch.cat(off), torch.cat(scale)
    errors = [(off.sum() / scale.sum()).sqrt().item(), (off / scale).max().sqrt().item()]
    return Deviation(*(error if math.isfinite(error) else math.inf for error in errors))


def deviations(found: list[list[torch.Tensor]], expected: list[list[torch.Tensor]]) -> list[Deviation]:
    """Of each of OUTPUTS, which every prompt has."""
    return [deviation([prompt[index] for prompt in found], [prompt[index] for prompt in expected])
            for index in range(len(OUTPUTS))]


@dataclass(frozen=True)
class Verdict:
    passed: bool
    summary: str
    fields: dict


def judge(found: list[list[torch.Tensor]], reference: list[list[torch.Tensor]],
          expected: list[list[torch.Tensor]]) -> Verdict:
    """OUTPUTS of each prompt: the daemon's, LTX-2's in bf16, and in float64. fp32 has limits of its own."""
    finite = all(bool(tensor.isfinite().all()) for prompt in found for tensor in prompt)
    errors, measure = deviations(found, expected), deviations(reference, expected)
    shares = [error.over(other) for error, other in zip(errors, measure)]
    is_f32 = found[0][0].dtype == torch.float32
    limit, row_limit = (F32_LIMIT, F32_ROW_LIMIT) if is_f32 else (LIMIT, ROW_LIMIT)
    held = errors if is_f32 else shares
    passed = finite and all(held_one.whole <= limit and held_one.row <= row_limit for held_one in held)
    print("output              daemon  LTX bf16   ratio   worst row  LTX bf16   ratio")
    for name, error, other, share in zip(OUTPUTS, errors, measure, shares):
        print(f"{name:16} {error.whole:.3e} {other.whole:.3e}  {share.whole:6.3f}   {error.row:.3e} {other.row:.3e}  "
              f"{share.row:6.3f}")
    worst = max(range(len(OUTPUTS)), key=lambda index: held[index].whole)
    word, number = ("error", f"{held[worst].whole:.1e} (fp32)") if is_f32 else ("ratio", f"{held[worst].whole:.3f}")
    summary = f"{'' if finite else 'NaN or infinity, '}worst {word} {number} in {OUTPUTS[worst]}"
    if worst_row := max(part.row for part in held):
        summary += f", of a row {worst_row:.1e}" if is_f32 else f", of rows {worst_row:.2f}"
    fields = {"outputs": OUTPUTS, "errors": [error.whole for error in errors], "measure": [m.whole for m in measure],
              "row_errors": [error.row for error in errors], "row_measure": [m.row for m in measure],
              "worst_ratio": max(share.whole for share in shares), "finite": finite}
    return Verdict(passed, summary, fields)


@dataclass
class Result:
    """Of each prompt: its hidden states, and OUTPUTS."""

    states: list[list[torch.Tensor]]
    outputs: list[list[torch.Tensor]]


def encode(daemon: GpuDaemon, prompts: list[dict], num_states: int) -> Result:
    """All of one request. AssertionError unless every rank gives the same bytes."""
    request = {"prompts": prompts, "outputs": ["hidden_states", "features", "embeddings"]}
    with Client(daemon.socket, ANSWER_S) as client:
        reply, tensors = encode_everywhere(daemon, client, request)
    wrong = [prompt for prompt in reply["prompts"] if prompt["status"] != "ok"]
    if wrong:
        raise AssertionError(f"encode: {wrong[:1]}")

    def of(prompt: int, names: list[str]) -> list[torch.Tensor]:
        return [torch_tensor(tensors[f"prompt.{prompt}.{name}"]) for name in names]

    names = [f"hidden_states.{index}" for index in range(num_states)]
    numbers = range(len(prompts))
    return Result([of(number, names) for number in numbers], [of(number, list(OUTPUTS)) for number in numbers])


def torch_tensor(tensor) -> torch.Tensor:
    """Of harness.Reader's."""
    return torch.frombuffer(bytearray(tensor.data), dtype=DTYPES[tensor.dtype]).view(tensor.shape)


def compute(version: Version, weights: Tensors, dtype: torch.dtype, states: list[list[torch.Tensor]],
            device: str) -> Iterator[list[torch.Tensor]]:
    processor = Processor(version, weights, dtype)
    for prompt in states:
        yield [tensor.cpu() for tensor in processor.outputs([state.to(device) for state in prompt])]


def check_version(version: Version, config: dict, seed: int, device: str, in_layouts: Callable, report) -> None:
    """`in_layouts(act, **settings)` calls act(layout, daemon) in each layout, with daemons of these settings."""
    num_states = config["num_hidden_layers"] + 1
    generator = random.Random(seed)
    prompts = [random_prompt(generator, length, config["vocab_size"]) for length in LENGTHS]
    results = {}
    with tempfile.TemporaryDirectory(prefix="gemmad-processor-") as folder:
        file = Path(folder) / "ltx.safetensors"
        make_checkpoint(file, version, config["hidden_size"], num_states, seed, device)
        report.say(f"processor: {version.name}, a checkpoint of {file.stat().st_size / 1e9:.1f} GB")

        def act(where, daemon: GpuDaemon) -> None:
            results[where] = encode(daemon, prompts, num_states)

        in_layouts(act, embeddings_processor=file)
        report.say("processor: LTX-2's bf16 and float64")
        weights = load_file(file, device)
    for where, result in results.items():
        expected, reference = (list(compute(version, weights, dtype, result.states, device))
                               for dtype in (torch.float64, torch.bfloat16))
        verdict = judge(result.outputs, reference, expected)
        report.finding("processor", f"{where.name} {version.name}", verdict.passed, verdict.summary, **verdict.fields)
