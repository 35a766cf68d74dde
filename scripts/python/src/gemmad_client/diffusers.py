"""gemmad for diffusers' LTX-2 pipelines: what they take as `prompt_embeds` and `prompt_attention_mask`.

HiddenStates gives Gemma's hidden states, which the pipeline's own connectors turn into embeddings. FinishedEmbeddings gives
the embeddings themselves, and takes the connectors' place.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from .fleet_encoder import FleetEncoder
from .torch_results import Device, embeddings, hidden_states, padding_mask


class HiddenStates:
    """    states = HiddenStates("/run/gemmad/control.sock")
    embeds, mask = states.encode(["a dog"], "cuda")
    pipe(prompt_embeds=embeds, prompt_attention_mask=mask, ...)
    """

    def __init__(self, socket_path: str | os.PathLike[str], **options: Any) -> None:
        """`options` are FleetEncoder's."""
        self._encoder = FleetEncoder(socket_path, **options)

    def encode(self, prompts: Sequence[str], device: Device,
               dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, torch.Tensor]:
        """Embeds [B, T, D * (L + 1)] with the layer as the fastest axis, zero where there is padding, and the mask [B, T]
        int64; padded on the left. Raises FleetError."""
        with self._encoder.encode(prompts, ["hidden_states"]) as lease:
            embeds = [self._packed(prompt, device, dtype) for prompt in lease.prompts]
            return torch.cat(embeds), torch.cat([padding_mask(prompt, device) for prompt in lease.prompts])

    @staticmethod
    def _packed(prompt: Any, device: Device, dtype: torch.dtype) -> torch.Tensor:
        states = hidden_states(prompt)
        packed = torch.zeros(1, prompt.padded_length, states[0].shape[1], len(states), dtype=dtype, device=device)
        for layer, state in enumerate(states):
            # To the device in one piece; it is spread out there.
            rows = state.to(device, dtype, non_blocking=True)
            packed[0, prompt.padded_length - prompt.num_tokens:, :, layer] = rows
        return packed.flatten(2)


class FinishedEmbeddings:
    """    finished = FinishedEmbeddings("/run/gemmad/control.sock")
    pipe.connectors = finished
    embeds, mask = finished.encode(["a dog"], "cuda")
    pipe(prompt_embeds=embeds, prompt_attention_mask=mask, ...)
    """

    def __init__(self, socket_path: str | os.PathLike[str], **options: Any) -> None:
        """`options` are FleetEncoder's."""
        self._encoder = FleetEncoder(socket_path, **options)
        self._video_channels: int | None = None

    def encode(self, prompts: Sequence[str], device: Device,
               dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, torch.Tensor]:
        """Embeds [B, T, Cv + Ca], video's channels before audio's, and a mask [B, T] int64 of ones. Raises FleetError."""
        with self._encoder.encode(prompts, ["embeddings"]) as lease:
            packed = []
            for prompt in lease.prompts:
                video, audio = embeddings(prompt, device, dtype)
                self._video_channels = video.shape[2]
                packed.append(torch.cat([video, audio], dim=2))
        embeds = torch.cat(packed)
        return embeds, torch.ones(embeds.shape[:2], dtype=torch.int64, device=device)

    def __call__(self, embeds: torch.Tensor, mask: torch.Tensor,
                 padding_side: str = "left") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As the connectors: video [B, T, Cv], audio [B, T, Ca] and a mask of ones, of what encode() gave."""
        if self._video_channels is None:
            raise ValueError("these connectors take what their encode() gave, and it has not been called")
        video, audio = embeds[..., :self._video_channels], embeds[..., self._video_channels:]
        return video.contiguous(), audio.contiguous(), torch.ones_like(mask)
