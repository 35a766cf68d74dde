"""The operations of the control socket: each function makes a request for Client.call, AsyncClient.call and submit.

Both clients have every one of them as a method of the same name and arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from . import replies
from .conversation import milliseconds, without_nones
from .fields import Json
from .images import image_field

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


def _list(what: str, values: Any) -> list[Any]:
    """Raises TypeError for what has no elements, and for a str, which would be taken for its letters."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"{what} is {values!r:.100}; it must be a list, of one element too")
    return list(values)


def _list_or_none(what: str, values: Any) -> list[Any] | None:
    return None if values is None else _list(what, values)


def _prompt(prompt: Prompt) -> Any:
    return prompt if isinstance(prompt, str) else {"input_ids": [int(token) for token in _list("a prompt that is no str", prompt)]}


def encode(prompts: Sequence[Prompt], *, outputs: Sequence[str] | None = None, layers: Sequence[int] | None = None,
           name: str | None = None, readers: int | None = None, prefer: str | None = None,
           deadline_s: float | None = None, return_input_ids: bool = False,
           enhance: bool | Mapping[str, Any] | None = None,
           on_token: Callable[[str], None] | None = None) -> Request[replies.EncodeReply]:
    """Encodes prompts: answered when every rank has published the result.

    `outputs` are names of `info`'s list (hidden_states unless given), `layers` the hidden states to publish; `name` is
    what readers may acquire by, `readers` how many of each place will come; the result is given up at `deadline_s`.

    With `enhance` the first prompt, which must be text, is rewritten before, as LTX-2's enhance_first_prompt does: True, or
    a dict of enhance_t2v's options and `image`. `on_token` hears that text as enhance_t2v's does. The deadline is for both.
    """
    fields = without_nones({
        "prompts": [_prompt(prompt) for prompt in _list("prompts", prompts)],
        "outputs": _list_or_none("outputs", outputs), "layers": _list_or_none("layers", layers),
        "name": name, "readers": readers, "prefer": prefer,
        "deadline_ms": _deadline_ms(deadline_s), "return_input_ids": return_input_ids or None,
        "enhance": _enhance_field(enhance, on_token)})
    return Request("encode", fields, replies.parse_encoded, deadline_s, _hearing(on_token))


def _deadline_ms(deadline_s: float | None) -> int | None:
    return None if deadline_s is None else max(1, milliseconds(deadline_s))


def _enhance_field(enhance: bool | Mapping[str, Any] | None, on_token: Callable[[str], None] | None) -> Any:
    if enhance is not None and not isinstance(enhance, (bool, Mapping)):
        raise TypeError(f"enhance is {enhance!r:.100}; it must be True, or a dict of enhance_t2v's options")
    if not enhance and not isinstance(enhance, Mapping):
        return None
    options = without_nones(dict(enhance)) if isinstance(enhance, Mapping) else {}
    if "image" in options:
        options["image"] = image_field(options["image"])
    if on_token is not None:
        options["stream"] = True
    return options or True


def _hearing(on_token: Callable[[str], None] | None) -> Callable[[Json], None] | None:
    """What hears the events of a stream for `on_token`."""
    if on_token is None:
        return None

    def tell(event: Json) -> None:
        if event.get("event") == "token":
            on_token(replies.parse_token(event).text)

    return tell


def tokenize(texts: Sequence[str], *, as_prompts: bool = False) -> Request[tuple[replies.TokenizedText, ...]]:
    """The ids of texts as they are; or `as_prompts`, as encode would use them."""
    return Request("tokenize", {"texts": _list("texts", texts), "as_prompts": as_prompts}, replies.parse_tokenized)


def info() -> Request[Json]:
    """What is loaded and how."""
    return Request("info", {}, replies.parse_fields)


def health() -> Request[Json]:
    """What rank 0 last heard of every rank, and when."""
    return Request("health", {}, replies.parse_fields)


def metrics() -> Request[str]:
    """Counters in Prometheus' text format."""
    return Request("metrics", {}, replies.parse_metrics)


def cancel(*, job: int | None = None, name: str | None = None, request: int | None = None) -> Request[bool]:
    """Gives up an encode that waits, or an enhancement at any time, named by exactly one of the three (`request`: a
    Pending's id). False for an encode that runs already. An enhancement's own answer tells whether it was in time."""
    return Request("cancel", without_nones({"job": job, "name": name, "request": request}), replies.parse_cancelled)


def switch(*, mode: str | None = None, strategy: str | None = None, ranks_per_replica: int | None = None,
           encoder_ranks: Sequence[int] | None = None) -> Request[Json]:
    """Lays the model out anew: what is not given stays. Returns how it lies now."""
    return Request("switch", without_nones({
        "mode": mode, "strategy": strategy, "ranks_per_replica": ranks_per_replica,
        "encoder_ranks": _list_or_none("encoder_ranks", encoder_ranks)}), replies.parse_fields)


def sleep() -> Request[Json]:
    """Gives the device's memory back until the next encode."""
    return Request("sleep", {}, replies.parse_fields)


def wake() -> Request[Json]:
    """Takes it again."""
    return Request("wake", {}, replies.parse_fields)


def shutdown() -> Request[None]:
    """Finishes what waits, then stops: answered as the last."""
    return Request("shutdown", {}, replies.parse_nothing)


def enhance_t2v(prompt: str, *, system_prompt: str | None = None, max_new_tokens: int | None = None,
                seed: int | None = None, temperature: float | None = None, top_k: int | None = None,
                top_p: float | None = None, greedy: bool | None = None, no_repeat_ngram: int | None = None,
                clean: bool | None = None, guard: bool | None = None, name: str | None = None,
                readers: int | None = None, deadline_s: float | None = None,
                on_token: Callable[[str], None] | None = None) -> Request[replies.EnhancedText]:
    """A better prompt for text to video: a str that also tells how it came about.

    What is not given is as in LTX-2, 512 tokens at most, drawn with seed 10 at temperature 0.7 of the 50 likeliest, but for
    the system prompt, which is the daemon's. The same seed gives the same text; `greedy` draws nothing. `clean` False leaves
    the text as generated, without LTX-2's clean_response; `guard` False lets it go in circles. The text is readable by `name`
    like a result.

    `on_token` hears the text as generated, piece by piece, on the thread that reads the socket; it must not use the client.
    """
    fields = without_nones({
        "prompt": prompt, "system_prompt": system_prompt, "max_new_tokens": max_new_tokens, "seed": seed,
        "temperature": temperature, "top_k": top_k, "top_p": top_p, "greedy": greedy, "no_repeat_ngram": no_repeat_ngram,
        "clean": clean, "guard": guard, "name": name, "readers": readers, "deadline_ms": _deadline_ms(deadline_s),
        "stream": True if on_token is not None else None})
    return Request("enhance_t2v", fields, replies.parse_enhanced, deadline_s, _hearing(on_token))


def enhance_i2v(prompt: str, image: Any, **options: Any) -> Request[replies.EnhancedText]:
    """The same for image to video, with enhance_t2v's options. `image` is uint8 [H, W, 3] of numpy or torch, or a PNG or JPEG:
    its path, or its bytes. Raises ValueError for another array, OSError for a file that cannot be read.

    An image travels in the request's line, which the daemon bounds (max_line_bytes, 8 MiB unless configured): one far larger
    than 896 pixels, to which LTX-2 scales it anyway, should be scaled before.
    """
    request = enhance_t2v(prompt, **options)
    return replace(request, op="enhance_i2v", fields={**request.fields, "image": image_field(image)})


def streamed(request: Request[T], on_event: Callable[[Json], None]) -> Request[T]:
    """An enhancement, or an encode that enhances, whose events somebody else hears."""
    fields = dict(request.fields)
    if request.op != "encode":
        fields["stream"] = True
    elif "enhance" in fields:
        fields["enhance"] = {**(fields["enhance"] if isinstance(fields["enhance"], dict) else {}), "stream": True}
    return replace(request, fields=fields, on_event=on_event)
