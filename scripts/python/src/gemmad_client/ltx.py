"""gemmad in LTX-2's pipelines, in place of the Gemma that every pipeline loads itself. See install().

Two levels. With "hidden_states" gemmad gives Gemma's hidden states, and the pipeline goes on to make embeddings of them.
With "embeddings" gemmad gives the finished embeddings, and the pipeline holds no embeddings processor either.

In a pipeline of several ranks all of this is done on every rank; see FleetEncoder for how they stay in step, and fail alike:
with FleetError, a ValueError of the same text.
"""

from __future__ import annotations

import copy
import importlib.resources
import os
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch

from .fields import Json
from .fleet_encoder import EnhanceUnavailable, FleetEncoder, FleetError
from .torch_results import embeddings, left_padded, padding_mask

__all__ = ["EmbeddingsProcessorOutput", "EnhanceUnavailable", "FleetError", "GemmadEmbeddingsBuilder",
           "GemmadGemmaBuilder", "GemmadTextEncoder", "install"]

Level = Literal["hidden_states", "embeddings"]


class EmbeddingsProcessorOutput(NamedTuple):
    """As LTX-2's of that name."""

    video_encoding: torch.Tensor   # [1, 1024, C]
    audio_encoding: torch.Tensor   # [1, 1024, C]
    attention_mask: torch.Tensor   # [1, 1024] int64, all ones


class GemmadTextEncoder:
    """What the builder builds: one for each call of the prompt encoder. Holds no weights."""

    def __init__(self, encoder: FleetEncoder, level: Level, device: str | torch.device, dtype: torch.dtype) -> None:
        self._encoder = encoder
        self._level = level
        self._device = device
        self._dtype = dtype

    def eval(self) -> GemmadTextEncoder:
        return self

    def encode(self, prompts: Sequence[str]) -> list[tuple[Any, torch.Tensor]]:
        """For each prompt the hidden states 0 .. L, each [1, 1024, D], and the mask [1, 1024] of real tokens; or instead
        of the hidden states an EmbeddingsProcessorOutput, which GemmadEmbeddingsBuilder's processor hands on."""
        if not prompts:
            return []
        with self._encoder.encode(prompts, [self._level]) as lease:
            return [(self._result(prompt), padding_mask(prompt, self._device)) for prompt in lease.prompts]

    def enhance_t2v(self, prompt: str, max_new_tokens: int | None = None, system_prompt: str | None = None,
                    seed: int | None = None, static_cache: bool = False) -> str:
        """The text as generated: LTX-2 cleans it. Without `system_prompt` by LTX-2's own for Gemma 3, where it is installed,
        else by the daemon's. Alike on all ranks; `static_cache` means nothing to gemmad. Raises FleetError,
        EnhanceUnavailable where the daemon cannot."""
        system_prompt = system_prompt or _ltx_system_prompt("t2v")
        return self._encoder.enhance("enhance_t2v", prompt, None, _options(max_new_tokens, system_prompt, seed))

    def enhance_i2v(self, prompt: str, image: torch.Tensor, max_new_tokens: int | None = None,
                    system_prompt: str | None = None, seed: int | None = None, static_cache: bool = False) -> str:
        """The same with an image, uint8 [H, W, 3]."""
        system_prompt = system_prompt or _ltx_system_prompt("i2v")
        return self._encoder.enhance("enhance_i2v", prompt, image, _options(max_new_tokens, system_prompt, seed))

    def dispose(self) -> None:
        """There is nothing to give back."""

    def teardown(self) -> None:
        """There is nothing to give back."""

    def _result(self, prompt: Any) -> Any:
        if self._level == "hidden_states":
            return left_padded(prompt, self._device, self._dtype)
        video, audio = embeddings(prompt, self._device, self._dtype)
        return EmbeddingsProcessorOutput(
            video, audio, torch.ones(1, video.shape[1], dtype=torch.int64, device=self._device))


class GemmadGemmaBuilder:
    """Goes where LTX-2's prompt encoder has its text encoder builder. Building costs nothing."""

    def __init__(self, encoder: FleetEncoder, level: Level = "hidden_states", registry: Any = None) -> None:
        """Raises FleetError where the daemon does not offer the level."""
        offered = encoder.info["outputs"]
        if level not in offered:
            raise FleetError(f"gemmad: this daemon offers {', '.join(offered)}, not {level}")
        self._encoder = encoder
        self.level = level
        self.registry = registry

    def build(self, device: str | torch.device | None = None, dtype: torch.dtype | None = None,
              **_: Any) -> GemmadTextEncoder:
        return GemmadTextEncoder(self._encoder, self.level, device or "cpu", dtype or torch.bfloat16)

    def model_config(self) -> Json:
        """`model_type` as LTX-2 calls it."""
        return {"model_type": self._encoder.info["model"]["type"].removesuffix("_text")}

    def model_metadata(self) -> Json:
        return {"config": self.model_config()}

    def with_registry(self, registry: Any) -> GemmadGemmaBuilder:
        """A copy with that registry; gemmad registers nothing."""
        other = copy.copy(self)
        other.registry = registry
        return other


class GemmadEmbeddingsBuilder:
    """Goes where the prompt encoder has its embeddings processor builder, beside a GemmadGemmaBuilder of the level
    "embeddings"."""

    def build(self, device: str | torch.device | None = None, dtype: torch.dtype | None = None,
              **_: Any) -> _FinishedEmbeddings:
        return _FinishedEmbeddings()


class _FinishedEmbeddings:
    """An embeddings processor whose work is done."""

    def eval(self) -> _FinishedEmbeddings:
        return self

    def process_hidden_states(self, hidden_states: EmbeddingsProcessorOutput, attention_mask: torch.Tensor,
                              padding_side: str = "left") -> EmbeddingsProcessorOutput:
        return hidden_states

    def dispose(self) -> None:
        """There is nothing to give back."""


def install(pipeline: Any, socket_path: str | os.PathLike[str], *, level: Level | None = None, enhancer: Any = None,
            **options: Any) -> GemmadGemmaBuilder:
    """Makes a pipeline of LTX-2 encode with the daemon on that control socket. On every rank, once it is constructed.

    `level`: "embeddings" where the daemon offers them, else "hidden_states", unless given. A pipeline whose prompt
    enhancer is its text encoder enhances with gemmad too; one with an enhancer of its own keeps that, or gets `enhancer`,
    a builder. `options` are FleetEncoder's. Raises FleetError, on every rank alike.
    """
    prompt_encoder = pipeline.prompt_encoder
    offload_mode = getattr(prompt_encoder, "_offload_mode", None)
    if getattr(offload_mode, "name", offload_mode) not in (None, "NONE"):
        raise FleetError(f"gemmad: with offload_mode {offload_mode} LTX-2 takes a builder of its own: construct the pipeline "
                         "without offload")
    separate = prompt_encoder._enhancer_text_encoder_builder is not prompt_encoder._text_encoder_builder
    encoder = FleetEncoder(socket_path, **options)
    try:
        builder = GemmadGemmaBuilder(encoder, level or _best_level(encoder))
        _check_model(builder, getattr(prompt_encoder, "_encode_model_type", None))
    except FleetError:
        encoder.close()
        raise
    prompt_encoder._text_encoder_builder = builder
    if not separate:
        prompt_encoder._enhancer_text_encoder_builder = builder
    elif enhancer is not None:
        prompt_encoder._enhancer_text_encoder_builder = enhancer
    if builder.level == "embeddings":
        prompt_encoder._embeddings_processor_builder = GemmadEmbeddingsBuilder()
    return builder


def _best_level(encoder: FleetEncoder) -> Level:
    return "embeddings" if "embeddings" in encoder.info["outputs"] else "hidden_states"


def _check_model(builder: GemmadGemmaBuilder, expected: Any) -> None:
    model_type = builder.model_config()["model_type"]
    if isinstance(expected, str) and expected and expected != model_type:
        raise FleetError(f"gemmad: the pipeline expects a text encoder of type {expected}, the daemon runs {model_type}")


def _ltx_system_prompt(kind: str) -> str | None:
    try:
        prompts = importlib.resources.files("ltx_core") / "text_encoders" / "gemma" / "encoders" / "prompts"
        return (prompts / f"gemma3_{kind}_system_prompt.txt").read_text(encoding="utf-8")
    except (ModuleNotFoundError, FileNotFoundError):
        return None


def _options(max_new_tokens: int | None, system_prompt: str | None, seed: int | None) -> Json:
    return {"max_new_tokens": max_new_tokens, "system_prompt": system_prompt, "seed": seed, "clean": False}
