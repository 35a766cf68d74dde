"""Results in the shapes that pipelines know: padded on the left, on their device."""

from __future__ import annotations

import torch

from .errors import ProtocolError
from .lease import LeasedPrompt, LeasedTensor

Device = str | torch.device


def hidden_states(prompt: LeasedPrompt) -> list[LeasedTensor]:
    """The hidden states 0 .. L of a prompt that was asked for all of them. Raises ProtocolError where one is missing."""
    count = sum(name.startswith("hidden_states.") for name in prompt.tensors)
    names = [f"hidden_states.{layer}" for layer in range(count)]
    if count == 0 or any(name not in prompt.tensors for name in names):
        raise ProtocolError(f"the result has no complete hidden states: {sorted(prompt.tensors)}")
    return [prompt[name] for name in names]


def padding_mask(prompt: LeasedPrompt, device: Device) -> torch.Tensor:
    """[1, T] int64: 1 for real tokens, which are the last ones."""
    mask = torch.zeros(1, prompt.padded_length, dtype=torch.int64, device=device)
    mask[:, prompt.padded_length - prompt.num_tokens:] = 1
    return mask


def left_padded(prompt: LeasedPrompt, device: Device, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """The hidden states, each [1, T, D], zero where there is padding. They may still be on their way when this returns:
    on the current stream, and the lease lasts until they are there."""
    states = hidden_states(prompt)
    all_padded = torch.zeros(len(states), prompt.padded_length, states[0].shape[1], dtype=dtype, device=device)
    for padded, state in zip(all_padded, states):
        state.copy_to(padded[prompt.padded_length - prompt.num_tokens:], non_blocking=True)
    return tuple(all_padded[layer:layer + 1] for layer in range(len(states)))


def embeddings(prompt: LeasedPrompt, device: Device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Video's and audio's, each [1, T, C], under way like the hidden states."""
    video, audio = (prompt[f"embeddings.{kind}"].to(device, dtype, non_blocking=True) for kind in ("video", "audio"))
    return video[None], audio[None]
