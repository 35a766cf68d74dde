"""What a Gemma 3 of random weights must give, in PyTorch: in float64 as written here, and in bf16 as transformers do.

Needs torch, numpy and transformers. A prompt of n tokens has the positions of one padded on the left to 1024:
1024 - n + i. In float64 the embedding is scaled by the square root of the width in fp32, and angles are rounded to
fp32, as the goldens in tests/data have it.
"""

import contextlib
import math

import gpu_daemon  # noqa: F401  (lets scripts/ be imported)
import random_weights
import torch

PADDED_LENGTH = 1024
ELEMENTS_AT_ONCE = 1 << 25
NOT_OF_TRANSFORMERS = ("architectures", "model_type", "dtype")


def signed(value: int) -> int:
    """The int64 of those 64 bits: torch multiplies and adds these alone, modulo 2^64."""
    value &= random_weights.MASK
    return value - (1 << 64) if value >> 63 else value


def shifted(values: torch.Tensor, bits: int) -> torch.Tensor:
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def fill_random(flat: torch.Tensor, seed: int, name: str) -> None:
    """The values of scripts/random_weights.py, into a flat bf16 tensor."""
    key = random_weights.key(seed, name)
    for first in range(0, flat.numel(), ELEMENTS_AT_ONCE):
        piece = flat[first:first + ELEMENTS_AT_ONCE]
        state = torch.arange(first + 1, first + 1 + piece.numel(), dtype=torch.int64, device=flat.device)
        state.mul_(signed(random_weights.STEP)).add_(signed(key))
        for shift, factor in zip((30, 27), random_weights.FACTORS):
            state.bitwise_xor_(shifted(state, shift)).mul_(signed(factor))
        state.bitwise_xor_(shifted(state, 31))
        total = sum((state >> shift) & 0xffff for shift in (0, 16, 32, 48))
        piece.copy_((total - random_weights.MEAN).to(torch.float32) * random_weights.SCALE)


def check_generator(device: str, seed: int) -> None:
    """Raises AssertionError unless the values are those of scripts/random_weights.py, bit for bit."""
    count = 1 << 16
    name = "layers.0.mlp.down_proj.weight"
    expected = random_weights.values_numpy(seed, name, 0, count)
    found = torch.empty(count, dtype=torch.bfloat16, device=device)
    fill_random(found, seed, name)
    if found.cpu().view(torch.int16).numpy().astype("<i2").tobytes() != expected:
        raise AssertionError("the weights made here are not those of scripts/random_weights.py")


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def transformers_model(config: dict, device: str):
    """A text model of transformers in bf16, with weights of no meaning yet."""
    from transformers import Gemma3TextConfig, Gemma3TextModel

    settings = Gemma3TextConfig(**{key: value for key, value in config.items() if key not in NOT_OF_TRANSFORMERS})
    settings._attn_implementation = "sdpa"
    with default_dtype(torch.bfloat16), torch.device(device):
        return Gemma3TextModel(settings).eval()


def random_model(config: dict, seed: int, device: str):
    """transformers' model with the weights that the daemon makes from that seed: norms are zeros, which scale by 1."""
    model = transformers_model(config, device)
    with torch.inference_mode():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.zero_()
            else:
                fill_random(parameter.view(-1), seed, name)
    return model


def positions(num_tokens: int, device) -> torch.Tensor:
    return torch.arange(PADDED_LENGTH - num_tokens, PADDED_LENGTH, device=device)


@torch.inference_mode()
def transformers_states(model, ids: list[int]) -> list[torch.Tensor]:
    """All hidden states of one prompt."""
    device = model.embed_tokens.weight.device
    output = model(input_ids=torch.tensor([ids], device=device), position_ids=positions(len(ids), device)[None],
                   output_hidden_states=True, use_cache=False)
    return [state[0] for state in output.hidden_states]


class Float64Model:
    """The forward pass in float64, layer by layer, on weights of any type. `parameters`: by transformers' names."""

    def __init__(self, config: dict, parameters: dict[str, torch.Tensor]):
        self.config = config
        self.parameters = parameters
        self.device = parameters["embed_tokens.weight"].device

    @torch.inference_mode()
    def states(self, prompts: list[list[int]]) -> list[list[torch.Tensor]]:
        """All hidden states of each prompt. A layer's weights are widened once for all prompts."""
        current = [self.embedded(ids) for ids in prompts]
        found = [[state] for state in current]
        num_layers = self.config["num_hidden_layers"]
        for layer in range(num_layers):
            weights = self.layer_weights(layer)
            current = [self.run_layer(state, weights, self.config["layer_types"][layer]) for state in current]
            if layer + 1 < num_layers:
                for states, state in zip(found, current):
                    states.append(state)
        last_norm = self.parameters["norm.weight"].double()
        for states, state in zip(found, current):
            states.append(self.norm(state, last_norm))
        return found

    def embedded(self, ids: list[int]) -> torch.Tensor:
        rows = self.parameters["embed_tokens.weight"][torch.tensor(ids, device=self.device)].double()
        return rows * torch.tensor(math.sqrt(self.config["hidden_size"]), dtype=torch.float32).item()

    def layer_weights(self, layer: int) -> dict[str, torch.Tensor]:
        prefix = f"layers.{layer}."
        return {name.removeprefix(prefix).removesuffix(".weight"): tensor.double()
                for name, tensor in self.parameters.items() if name.startswith(prefix)}

    def norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config["rms_norm_eps"]) * (1 + weight)

    def run_layer(self, x: torch.Tensor, weights: dict[str, torch.Tensor], kind: str) -> torch.Tensor:
        attended = self.attention(self.norm(x, weights["input_layernorm"]), weights, kind)
        x = x + self.norm(attended, weights["post_attention_layernorm"])
        normed = self.norm(x, weights["pre_feedforward_layernorm"])
        gate = torch.nn.functional.gelu(normed @ weights["mlp.gate_proj"].T, approximate="tanh")
        fed = (gate * (normed @ weights["mlp.up_proj"].T)) @ weights["mlp.down_proj"].T
        return x + self.norm(fed, weights["post_feedforward_layernorm"])

    def attention(self, x: torch.Tensor, weights: dict[str, torch.Tensor], kind: str) -> torch.Tensor:
        size, num_tokens = self.config["head_dim"], x.shape[0]
        group = self.config["num_attention_heads"] // self.config["num_key_value_heads"]
        heads = {part: (x @ weights[f"self_attn.{part}_proj"].T).view(num_tokens, -1, size).transpose(0, 1)
                 for part in "qkv"}
        cos, sin = self.rotation(num_tokens, kind)
        query = self.rotated(self.norm(heads["q"], weights["self_attn.q_norm"]), cos, sin)
        key = self.rotated(self.norm(heads["k"], weights["self_attn.k_norm"]), cos, sin).repeat_interleave(group, 0)
        scores = query @ key.transpose(1, 2) * self.config["query_pre_attn_scalar"] ** -0.5
        scores = scores.masked_fill(~self.visible(num_tokens, kind), -math.inf)
        mixed = scores.softmax(-1) @ heads["v"].repeat_interleave(group, 0)
        return mixed.transpose(0, 1).reshape(num_tokens, -1) @ weights["self_attn.o_proj"].T

    def rotation(self, num_tokens: int, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine of each token's angles: frequencies, angles and values rounded to fp32, one by one."""
        rope, size = self.config["rope_parameters"][kind], self.config["head_dim"]
        exponents = torch.arange(0, size, 2, dtype=torch.float32) / size
        powers = torch.pow(torch.tensor(rope["rope_theta"], dtype=torch.float64), exponents.double()).float()
        frequencies = 1 / powers / rope.get("factor", 1.0)
        angles = (positions(num_tokens, "cpu").float()[:, None] * frequencies).double()
        return tuple(part.float().double().to(self.device) for part in (angles.cos(), angles.sin()))

    @staticmethod
    def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        low, high = x.chunk(2, dim=-1)
        return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)

    def visible(self, num_tokens: int, kind: str) -> torch.Tensor:
        place = torch.arange(num_tokens, device=self.device)
        distance = place[:, None] - place
        seen = distance >= 0
        return seen & (distance < self.config["sliding_window"]) if kind == "sliding_attention" else seen
