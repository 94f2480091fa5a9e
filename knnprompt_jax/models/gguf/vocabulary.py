"""The vocabulary of a GGUF file: its tokens, their kinds, and the special tokens."""

import collections
import dataclasses

import numpy as np

from knnprompt_jax.models.gguf import header as gguf_header

# Kinds of tokens, numbered as in SentencePiece.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
ROLES = {"bos": "bos_token_id", "eos": "eos_token_id", "unk": "unknown_token_id", "pad": "padding_token_id"}


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The tokens and kinds by token id; `merges` and `scores` are None if the file has none.

    `roles` maps "bos", "eos", "unk" and "pad" to ids, where the file names them.
    """

    fields: gguf_header.Fields
    arch: str
    tokens: list[str]
    kinds: list[int]
    merges: list[tuple[str, str]] | None
    scores: np.ndarray | None
    roles: dict[str, int]

    def ids(self) -> dict[str, int]:
        """Return the id of each token, without the rows that only pad the embeddings."""
        return {
            token: id_
            for id_, (token, kind) in enumerate(zip(self.tokens, self.kinds, strict=True))
            if not (kind == UNUSED and token == f"[PAD{id_}]")
        }


def read(header: gguf_header.Header) -> Vocabulary:
    """Return the validated vocabulary.

    Raises:
        UserError: the vocabulary is missing, has duplicate tokens, or its parts do not fit together.
    """
    fields = gguf_header.tokenizer_fields(header)
    tokens, merges = _texts(fields, "tokens"), _texts(fields, "merges")
    if tokens is None:
        raise fields.wrong("tokens", "not in the file")
    duplicates = [token for token, count in collections.Counter(tokens).items() if count > 1]
    if duplicates:
        raise fields.wrong("tokens", f"{len(duplicates)} duplicate tokens, such as {duplicates[0]!r}")
    roles = {role: fields.value(key) for role, key in ROLES.items()}
    for role, id_ in roles.items():
        if id_ is not None and not (type(id_) is int and 0 <= id_ < len(tokens)):
            raise fields.wrong(ROLES[role], f"{id_!r} is no token of {len(tokens)}")
    kinds = _numbers(fields, "token_type", len(tokens))
    return Vocabulary(
        fields=fields,
        arch=gguf_header.model_fields(header).arch,
        tokens=tokens,
        kinds=[NORMAL] * len(tokens) if kinds is None else kinds.tolist(),
        merges=None if merges is None else [_split_merge(fields, merge) for merge in merges],
        scores=_numbers(fields, "scores", len(tokens)),
        roles={role: id_ for role, id_ in roles.items() if id_ is not None},
    )


def _texts(fields: gguf_header.Fields, key: str) -> list[str] | None:
    value = fields.value(key)
    if value is not None and not (isinstance(value, list) and value):
        raise fields.wrong(key, "no list of texts")
    return value


def _numbers(fields: gguf_header.Fields, key: str, length: int) -> np.ndarray | None:
    value = fields.value(key)
    if value is not None and not (isinstance(value, np.ndarray) and value.shape == (length,)):
        raise fields.wrong(key, f"{length} numbers are needed, one for each token")
    return value


def _split_merge(fields: gguf_header.Fields, merge: str) -> tuple[str, str]:
    """Split a merge at the blank between its parts; the first part may itself begin with a blank."""
    left, blank, right = merge[1:].partition(" ")
    if not blank or not right:
        raise fields.wrong("merges", f"{merge!r} does not have two parts")
    return merge[0] + left, right
