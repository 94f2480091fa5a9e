"""The vocabulary of a GGUF file: its tokens, of which kind each is, and which of them have a part to play."""

import collections
import dataclasses
from typing import Any

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.models.gguf import fields as gguf_fields
from knnprompt_jax.models.gguf import header as gguf_header

# Kinds of tokens, as SentencePiece numbers them.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """`tokens` and `kinds` by token number; `merges` and `scores` are None where the file has none.

    `roles` says which token is "bos", "eos", "unk" and "pad", where the file names one.
    """

    header: gguf_header.Header
    arch: str
    tokens: list[str]
    kinds: list[int]
    merges: list[tuple[str, str]] | None
    scores: np.ndarray | None
    roles: dict[str, int]

    def numbers(self) -> dict[str, int]:
        """From token to number, without the rows that only pad the embeddings."""
        return {
            token: number
            for number, (token, kind) in enumerate(zip(self.tokens, self.kinds, strict=True))
            if not (kind == UNUSED and token == f"[PAD{number}]")
        }

    def of_kind(self, *kinds: int) -> list[str]:
        return [token for token, kind in zip(self.tokens, self.kinds, strict=True) if kind in kinds]

    def switch(self, key: str, default: bool) -> bool:
        value = self.header.metadata.get(f"tokenizer.ggml.{key}", default)
        if type(value) is not bool:
            raise self.wrong(key, f"{value!r} is neither true nor false")
        return value

    def wrong(self, key: str, reason: str) -> errors.UserError:
        return errors.UserError(f"{self.header.file}: tokenizer.ggml.{key}: {reason}")


def read(header: gguf_header.Header) -> Vocabulary:
    """The vocabulary, checked.

    Raises:
        UserError: it is missing, holds a token twice, or its parts do not fit together.
    """
    tokens = _list(header, "tokens")
    if tokens is None:
        raise errors.UserError(f"{header.file}: no metadata value tokenizer.ggml.tokens")
    twice = [token for token, count in collections.Counter(tokens).items() if count > 1]
    if twice:
        raise errors.UserError(
            f"{header.file}: tokenizer.ggml.tokens: {len(twice)} tokens stand twice, such as {twice[0]!r}"
        )
    kinds = _array(header, "token_type", len(tokens))
    merges = _list(header, "merges")
    return Vocabulary(
        header=header,
        arch=gguf_fields.text(header, "general.architecture"),
        tokens=tokens,
        kinds=[NORMAL] * len(tokens) if kinds is None else kinds.tolist(),
        merges=None if merges is None else [_pair(header, merge) for merge in merges],
        scores=_array(header, "scores", len(tokens)),
        roles=_roles(header, len(tokens)),
    )


def _list(header: gguf_header.Header, key: str) -> list[str] | None:
    value = header.metadata.get(f"tokenizer.ggml.{key}")
    if value is not None and not (isinstance(value, list) and value):
        raise errors.UserError(f"{header.file}: tokenizer.ggml.{key}: no list of texts")
    return value


def _array(header: gguf_header.Header, key: str, length: int) -> np.ndarray | None:
    value: Any = header.metadata.get(f"tokenizer.ggml.{key}")
    if value is not None and not (isinstance(value, np.ndarray) and value.shape == (length,)):
        raise errors.UserError(f"{header.file}: tokenizer.ggml.{key}: {length} numbers are needed, as many as tokens")
    return value


def _pair(header: gguf_header.Header, merge: str) -> tuple[str, str]:
    """The two parts of a merge, written with a blank between; the first may itself begin with a blank."""
    left, blank, right = merge[1:].partition(" ")
    if not blank or not right:
        raise errors.UserError(f"{header.file}: tokenizer.ggml.merges: {merge!r} are not two parts")
    return merge[0] + left, right


def _roles(header: gguf_header.Header, num_tokens: int) -> dict[str, int]:
    keys = {"bos": "bos_token_id", "eos": "eos_token_id", "unk": "unknown_token_id", "pad": "padding_token_id"}
    roles = {role: header.metadata.get(f"tokenizer.ggml.{key}") for role, key in keys.items()}
    for role, number in roles.items():
        if number is not None and not (type(number) is int and 0 <= number < num_tokens):
            reason = f"{number!r} is no token of {num_tokens}"
            raise errors.UserError(f"{header.file}: tokenizer.ggml.{keys[role]}: {reason}")
    return {role: number for role, number in roles.items() if number is not None}
