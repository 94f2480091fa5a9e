"""The vocabulary of a GGUF file: its tokens, of which kind each is, and which of them have a part to play."""

import collections
import dataclasses

import numpy as np

from knnprompt_jax.models.gguf import fields as gguf_fields
from knnprompt_jax.models.gguf import header as gguf_header

# Kinds of tokens, as SentencePiece numbers them.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
ROLES = {"bos": "bos_token_id", "eos": "eos_token_id", "unk": "unknown_token_id", "pad": "padding_token_id"}


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """`tokens` and `kinds` by token number; `merges` and `scores` are None where the file has none.

    `roles` says which token is "bos", "eos", "unk" and "pad", where the file names one.
    """

    fields: gguf_fields.Fields
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


def read(header: gguf_header.Header) -> Vocabulary:
    """The vocabulary, checked. Raises UserError: it is missing, holds a token twice, or its parts do not fit together."""
    fields = gguf_fields.of_tokenizer(header)
    tokens, merges = _texts(fields, "tokens"), _texts(fields, "merges")
    if tokens is None:
        raise fields.wrong("tokens", "not in the file")
    twice = [token for token, count in collections.Counter(tokens).items() if count > 1]
    if twice:
        raise fields.wrong("tokens", f"{len(twice)} tokens stand twice, such as {twice[0]!r}")
    kinds = _numbers(fields, "token_type", len(tokens))
    return Vocabulary(
        fields=fields,
        arch=gguf_fields.of_model(header).arch,
        tokens=tokens,
        kinds=[NORMAL] * len(tokens) if kinds is None else kinds.tolist(),
        merges=None if merges is None else [_pair(fields, merge) for merge in merges],
        scores=_numbers(fields, "scores", len(tokens)),
        roles=_roles(fields, len(tokens)),
    )


def _texts(fields: gguf_fields.Fields, key: str) -> list[str] | None:
    value = fields.value(key)
    if value is not None and not (isinstance(value, list) and value):
        raise fields.wrong(key, "no list of texts")
    return value


def _numbers(fields: gguf_fields.Fields, key: str, length: int) -> np.ndarray | None:
    value = fields.value(key)
    if value is not None and not (isinstance(value, np.ndarray) and value.shape == (length,)):
        raise fields.wrong(key, f"{length} numbers are needed, as many as tokens")
    return value


def _pair(fields: gguf_fields.Fields, merge: str) -> tuple[str, str]:
    """The two parts of a merge, written with a blank between; the first may itself begin with a blank."""
    left, blank, right = merge[1:].partition(" ")
    if not blank or not right:
        raise fields.wrong("merges", f"{merge!r} are not two parts")
    return merge[0] + left, right


def _roles(fields: gguf_fields.Fields, num_tokens: int) -> dict[str, int]:
    roles = {role: fields.value(key) for role, key in ROLES.items()}
    for role, number in roles.items():
        if number is not None and not (type(number) is int and 0 <= number < num_tokens):
            raise fields.wrong(ROLES[role], f"{number!r} is no token of {num_tokens}")
    return {role: number for role, number in roles.items() if number is not None}
