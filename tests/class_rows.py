"""Rows of three classes, and a model of 8,192 bytes of context, for draws of demonstrations."""

import types

import numpy as np

import knnprompt_jax as kp
from knnprompt_jax.tasks.task import Example

TASK = kp.Task("many", ("text",), "{text}\nIt is", ("0", "1", "2"), ("bad", "good", "fair"))


def make_model(context: int) -> types.SimpleNamespace:
    """Return a tokenizer with a token per byte, and a context."""
    return types.SimpleNamespace(
        tokenize=lambda texts: [list(text.encode()) for text in texts],
        count_tokens=lambda texts: np.array([len(text.encode()) for text in texts], int),
        context=context,
    )


MODEL = make_model(8192)


def make_rows(count: int, seed: int = 0) -> list[Example]:
    """Return rows of three classes of unequal sizes."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, count, p=[0.5, 0.3, 0.2]).astype(str)
    return [Example({"text": f"{seed} says {rng.integers(10**9)}"}, labels[row], row) for row in range(count)]
