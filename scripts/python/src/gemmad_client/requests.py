"""The operations of the control socket: each function makes a request for Client.call, AsyncClient.call and submit.

Both clients have every one of them as a method of the same name and arguments.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from . import replies
from .conversation import milliseconds, without_nones
from .fields import Json

T = TypeVar("T")
# Text, or the ids of its tokens.
Prompt = str | Sequence[int]


@dataclass(frozen=True)
class Request(Generic[T]):
    """An operation that nobody has asked yet. `parse` makes the answer's value; `deadline_s` is the daemon's to keep."""

    op: str
    fields: Json
    parse: Callable[[Json], T]
    deadline_s: float | None = None
    on_event: Callable[[Json], None] | None = None


def _prompt(prompt: Prompt) -> Any:
    return prompt if isinstance(prompt, str) else {"input_ids": [int(token) for token in prompt]}


def encode(prompts: Sequence[Prompt], *, outputs: Sequence[str] | None = None, layers: Sequence[int] | None = None,
           name: str | None = None, readers: int | None = None, prefer: str | None = None,
           deadline_s: float | None = None, return_input_ids: bool = False) -> Request[replies.EncodeReply]:
    """Encodes prompts: answered when every rank has published the result.

    `outputs` are names of `info`'s list (hidden_states unless given), `layers` the hidden states to publish; `name` is
    what readers may acquire by, `readers` how many of each place will come; the result is given up at `deadline_s`.
    """
    fields = without_nones({
        "prompts": [_prompt(prompt) for prompt in prompts],
        "outputs": None if outputs is None else list(outputs), "layers": None if layers is None else list(layers),
        "name": name, "readers": readers, "prefer": prefer,
        "deadline_ms": None if deadline_s is None else max(1, milliseconds(deadline_s)),
        "return_input_ids": return_input_ids or None})
    return Request("encode", fields, replies.parse_encoded, deadline_s)


def tokenize(texts: Sequence[str], *, as_prompts: bool = False) -> Request[tuple[replies.TokenizedText, ...]]:
    """The ids of texts as they are; or `as_prompts`, as encode would use them."""
    return Request("tokenize", {"texts": list(texts), "as_prompts": as_prompts}, replies.parse_tokenized)


def info() -> Request[Json]:
    """What is loaded and how."""
    return Request("info", {}, replies.parse_fields)


def health() -> Request[Json]:
    """The live state of every rank."""
    return Request("health", {}, replies.parse_fields)


def metrics() -> Request[str]:
    """Counters in Prometheus' text format."""
    return Request("metrics", {}, replies.parse_metrics)


def cancel(*, job: int | None = None, name: str | None = None, request: int | None = None) -> Request[bool]:
    """Gives up an encode, named by exactly one of the three (`request`: a Pending's id). False when it runs already."""
    return Request("cancel", without_nones({"job": job, "name": name, "request": request}), replies.parse_cancelled)


def switch(*, mode: str | None = None, strategy: str | None = None, ranks_per_replica: int | None = None,
           encoder_ranks: Sequence[int] | None = None) -> Request[Json]:
    """Lays the model out anew: what is not given stays. Returns how it lies now."""
    return Request("switch", without_nones({
        "mode": mode, "strategy": strategy, "ranks_per_replica": ranks_per_replica,
        "encoder_ranks": None if encoder_ranks is None else list(encoder_ranks)}), replies.parse_fields)


def sleep() -> Request[Json]:
    """Gives the device's memory back until the next encode."""
    return Request("sleep", {}, replies.parse_fields)


def wake() -> Request[Json]:
    """Takes it again."""
    return Request("wake", {}, replies.parse_fields)


def shutdown() -> Request[None]:
    """Finishes what waits, then stops: answered as the last."""
    return Request("shutdown", {}, replies.parse_nothing)


def _enhance(op: str, fields: Json, options: dict[str, Any], on_token: Callable[[str], None] | None) -> Request[str]:
    def tell(event: Json) -> None:
        if on_token is not None and isinstance(event.get("text"), str):
            on_token(event["text"])

    chosen = without_nones(options)
    if on_token is not None:
        chosen["stream"] = True
    return Request(op, {**fields, **chosen}, replies.parse_enhanced, on_event=tell)


def enhance_t2v(prompt: str, *, on_token: Callable[[str], None] | None = None, **options: Any) -> Request[str]:
    """A better prompt for text to video. `options` as the daemon has them: system_prompt, max_new_tokens, seed ...

    `on_token` hears the text piece by piece, on the thread that reads the socket; it must not use the client.
    """
    return _enhance("enhance_t2v", {"prompt": prompt}, options, on_token)


def enhance_i2v(prompt: str, image: Any, *, on_token: Callable[[str], None] | None = None,
                **options: Any) -> Request[str]:
    """The same for image to video. `image` is uint8 [H, W, 3], of numpy or torch."""
    height, width, channels = (int(extent) for extent in image.shape)
    pixels = image.cpu().numpy() if hasattr(image, "cpu") else image
    fields = {"prompt": prompt, "image": {"shape": [height, width, channels],
                                          "data": base64.b64encode(pixels.tobytes()).decode()}}
    return _enhance("enhance_i2v", fields, options, on_token)
