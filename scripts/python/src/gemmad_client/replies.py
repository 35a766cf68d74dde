"""What the control socket answers, as typed values."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import RequestFailed
from .fields import (Json, as_object, get, get_count, get_counts, get_error, get_flag, get_number, get_objects,
                     get_text)


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a result. `dtype` is "F32", "BF16", "F16", "I32" or "U8"; `shape` is [n, D]: real tokens only."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class PromptReply:
    """What became of one prompt. With an `error` the other fields say nothing."""

    error: RequestFailed | None
    tokens: int = 0
    padded_length: int = 0
    truncated: bool = False
    tensors: tuple[TensorInfo, ...] = ()
    input_ids: tuple[int, ...] | None = None


class EnhancedText(str):
    """A rewritten prompt, and how it came about.

    `raw_text` is as generated. `stop` is "end", "length" (max_new_tokens) or "repetition" (it went in circles, and was cut).
    `tokens_per_s` is of the tokens after the first; `ms` tells where the time went.
    """

    job: int
    raw_text: str
    tokens_in: int
    tokens_out: int
    tokens_per_s: float
    stop: str
    ms: dict[str, float]


@dataclass(frozen=True)
class Token:
    """A piece of a stream: the tokens since the last one, and the text that they complete, which may be empty."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class EncodeReply:
    """All ranks have published the job. `ms` tells where the time went; `enhanced` is the first prompt, if rewritten."""

    job: int
    name: str | None
    prompts: tuple[PromptReply, ...]
    size_bytes: int
    cut: str
    ms: dict[str, float]
    enhanced: EnhancedText | None = None


@dataclass(frozen=True)
class TokenizedText:
    """With an `error` there are no ids."""

    error: RequestFailed | None
    ids: tuple[int, ...] = ()
    truncated: bool = False


def _prompt(body: Json) -> PromptReply:
    if get_text(body, "status") != "ok":
        return PromptReply(get_error(body))
    tensors = tuple(TensorInfo(get_text(tensor, "name"), get_text(tensor, "dtype"), get_counts(tensor, "shape"))
                    for tensor in get_objects(body, "tensors"))
    input_ids = get_counts(body, "input_ids") if "input_ids" in body else None
    return PromptReply(None, get_count(body, "tokens"), get_count(body, "padded_length"), get_flag(body, "truncated"),
                       tensors, input_ids)


def _times(body: Json) -> dict[str, float]:
    return {key: float(value) for key, value in as_object(body.get("ms", {}), "'ms'").items()
            if isinstance(value, (int, float))}


def parse_encoded(body: Json) -> EncodeReply:
    name = get_text(body, "name") if "name" in body else None
    enhanced = parse_enhanced(as_object(body["enhanced"], "'enhanced'")) if "enhanced" in body else None
    return EncodeReply(get_count(body, "job"), name, tuple(_prompt(prompt) for prompt in get_objects(body, "prompts")),
                       get_count(body, "bytes"), get_text(body, "cut"), _times(body), enhanced)


def _tokenized(body: Json) -> TokenizedText:
    if "error" in body:
        return TokenizedText(get_error(body))
    return TokenizedText(None, get_counts(body, "ids"), get_flag(body, "truncated"))


def parse_tokenized(body: Json) -> tuple[TokenizedText, ...]:
    return tuple(_tokenized(text) for text in get_objects(body, "texts"))


def parse_fields(body: Json) -> Json:
    """All fields as they came."""
    return {key: value for key, value in body.items() if key not in ("id", "ok")}


def parse_metrics(body: Json) -> str:
    return get_text(body, "text")


def parse_cancelled(body: Json) -> bool:
    return get_flag(body, "cancelled")


def parse_enhanced(body: Json) -> EnhancedText:
    text = EnhancedText(get_text(body, "text"))
    text.job = get_count(body, "job")
    text.raw_text = get_text(body, "raw_text")
    text.tokens_in, text.tokens_out = get_count(body, "tokens_in"), get_count(body, "tokens_out")
    text.tokens_per_s = get_number(body, "tokens_per_s")
    text.stop = get_text(body, "stop")
    text.ms = _times(body)
    return text


def parse_token(body: Json) -> Token:
    return Token(get_text(body, "text"), get_counts(body, "ids"))


def parse_nothing(body: Json) -> None:
    get(body, "ok")
