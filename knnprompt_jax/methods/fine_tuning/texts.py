"""Examples → token sequences as BERT and GPT-2 read them when they are fine-tuned."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax.prompts import padding
from knnprompt_jax.tasks.task import Example, Task

_MULTIPLE = 32


@dataclasses.dataclass(frozen=True)
class Texts:
    """The tokens of N examples, at least one each, and which text of a pair each token belongs to."""

    tokens: tuple[list[int], ...]
    types: tuple[list[int], ...]
    max_length: int

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths_N(self) -> np.ndarray:
        return np.array([len(tokens) for tokens in self.tokens])

    @property
    def width(self) -> int:
        """The longest sequence's length, rounded up, but not beyond the longest allowed."""
        return min(self.max_length, -(-int(self.lengths_N.max()) // _MULTIPLE) * _MULTIPLE)

    def batch(self, rows: Sequence[int] | np.ndarray, size: int, width: int) -> tuple[np.ndarray, ...]:
        """Tokens and token types [size, width] and lengths [size] of some rows, padded on the right and with further rows."""
        tokens_BT, lengths_B = padding.pad([self.tokens[row] for row in rows], size, width)
        types_BT, _ = padding.pad([self.types[row] for row in rows], size, width)
        return tokens_BT, types_BT, lengths_B


def encode(task: Task, examples: Sequence[Example], tokenizer: Any, max_length: int, as_pairs: bool) -> Texts:
    """Tokenizes the bare texts, without template or label; of a long text, the first `max_length` tokens.

    With `as_pairs` (BERT) the two fields of a task are two texts with a separator between, and the longer is cut first;
    otherwise, and where the fields are not two, an example is its retrieval text. An empty text is the token that
    ends texts, so that there is a last token to read.
    """
    if as_pairs and len(task.fields) == 2:
        columns = [[example.fields[field] for example in examples] for field in task.fields]
    else:
        columns = [[task.retrieval_text(example) for example in examples]]
    encoded = tokenizer(*columns, truncation=True, max_length=max_length, padding=False, return_token_type_ids=as_pairs)
    tokens = [ids or [tokenizer.eos_token_id or 0] for ids in encoded["input_ids"]]
    types = encoded["token_type_ids"] if as_pairs else [[0] * len(ids) for ids in tokens]
    return Texts(tuple(tokens), tuple(types), max_length)
