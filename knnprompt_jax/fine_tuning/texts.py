"""The texts of examples as tokens for a classifier. The prompt's template and label words are not used."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax import errors, rounding
from knnprompt_jax.models import encoders
from knnprompt_jax.tasks.task import Example, Task

# Widths are multiples of it, so that a few compiled programs serve all batches.
_MULTIPLE = 32


@dataclasses.dataclass(frozen=True)
class Texts:
    """The tokens of N examples, and each token's text index (0 or 1) within a pair.

    Every example has at least one token.
    """

    tokens: tuple[list[int], ...]
    types: tuple[list[int], ...]
    max_length: int

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths_N(self) -> np.ndarray:
        return np.array([len(tokens) for tokens in self.tokens])

    def width(self, rows: np.ndarray | slice = slice(None)) -> int:
        """Return the length of the longest of some rows, rounded up, but at most `max_length`; by default of all."""
        return min(self.max_length, rounding.round_up(int(self.lengths_N[rows].max()), _MULTIPLE))

    def batch(self, rows: Sequence[int] | np.ndarray, size: int, width: int) -> tuple[np.ndarray, ...]:
        """Return the tokens and token types [size, width] and the lengths [size] of some rows.

        Rows are padded on the right; extra rows fill the batch.
        """
        tokens_BT, lengths_B = encoders.pad([self.tokens[row] for row in rows], size, width)
        types_BT, _ = encoders.pad([self.types[row] for row in rows], size, width)
        return tokens_BT, types_BT, lengths_B


def encode(task: Task, examples: Sequence[Example], tokenizer: Any, max_length: int, as_pairs: bool) -> Texts:
    """Tokenize the bare texts, without template or label, and keep the first `max_length` tokens.

    With `as_pairs` (BERT), the two fields of a task are two texts with a separator between them, and the longer text is
    truncated first. Otherwise, or if the task does not have two fields, an example is its retrieval text. An empty text
    becomes the end-of-text token, because decoders classify the state of the last token.

    Raises:
        UserError: `max_length` tokens hold only the special tokens.
    """
    if as_pairs and len(task.fields) == 2:
        columns = [[example.fields[field] for example in examples] for field in task.fields]
    else:
        columns = [[task.retrieval_text(example) for example in examples]]
    special = tokenizer.num_special_tokens_to_add(pair=len(columns) == 2)
    if max_length <= special:
        raise errors.UserError(f"{max_length=}: texts of so few tokens hold only the {special} special tokens")
    encoded = tokenizer(*columns, truncation=True, max_length=max_length, padding=False, return_token_type_ids=as_pairs)
    tokens = [ids or [tokenizer.eos_token_id or 0] for ids in encoded["input_ids"]]
    types = encoded["token_type_ids"] if as_pairs else [[0] * len(ids) for ids in tokens]
    return Texts(tuple(tokens), tuple(types), max_length)
