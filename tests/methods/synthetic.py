"""Synthetic states with their float64 distributions, and methods that run on them without a language model."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import special

from knnprompt_jax.inference import lm
from knnprompt_jax.methods import all_methods, calibrations, method
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.tasks.splits import FewShotSplit
from knnprompt_jax.tasks.task import Example, Task

WORDS = ("red", "blue", "green", "grey", "pink")
NUM_QUERIES = 13


def tokenize_words(tokens: dict[str, list[int]]) -> Callable:
    """Return a tokenizer of words, which may follow a colon; other texts have one token per character."""

    def tokenize(texts: list[str]) -> list[list[int]]:
        tokenized = []
        for text in texts:
            word = text.removeprefix(":")
            colon = [99] if text.startswith(":") else []
            tokenized.append(colon + tokens.get(word, [9] * len(word)))
        return tokenized

    return tokenize


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """A language model with nothing but a head."""

    head: head_lib.Head


@dataclasses.dataclass(frozen=True)
class Synthetic:
    """A random head, N anchors around one mean state per class, Q queries, and three content-free prompts."""

    head: head_lib.Head
    label_tokens: list[int]
    y: np.ndarray
    anchors: lm.States
    queries: lm.States
    content_free: lm.States

    def log_p(self, states: lm.States) -> np.ndarray:
        """Return log p [N, V] in float64, from hidden states and head only."""
        logits_NV = np.asarray(states.hidden_NE, np.float64) @ np.asarray(self.head.rows_VE, np.float64).T
        return special.log_softmax(logits_NV, axis=-1)

    def p_labels(self, states: lm.States) -> np.ndarray:
        """Return the probabilities of the label words [N, C], not normalised over them."""
        return np.exp(self.log_p(states))[:, self.label_tokens]

    def context(self, y: np.ndarray | None = None, labels: str = "01234", queries: slice = slice(None)) -> Any:
        """Return the anchors and queries as those of a task.

        Args:
            y: classes of the first anchors, the only ones in the split; by default the classes of all anchors.
            labels: the labels of the classes, in class order.
            queries: which of the queries to classify.
        """
        y = self.y if y is None else y
        words = {f" {word}": [token] for word, token in zip(WORDS, self.label_tokens, strict=True)}
        task = Task("five", ("text",), "{text}:", tuple(labels), WORDS[: len(labels)])
        anchors = tuple(Example({"text": f"a{row}"}, labels[label], row) for row, label in enumerate(y))
        count = len(self.queries.take_replicated(queries))
        rows = [Example({"text": f"q{row}"}, labels[0], row) for row in range(count)]
        split = FewShotSplit((), anchors, seed=1, shots=21, demo_shots=0, class_counts={}, warnings=())
        problem = method.Problem(task, split, rows, tokenize_words(words))
        states = {
            method.ANCHORS: self.anchors.take_replicated(slice(len(y))),
            method.QUERIES: self.queries.take_replicated(queries),
            calibrations.CONTENT_FREE: self.content_free,
            calibrations.IN_DOMAIN: self.content_free,
        }
        return method.Inputs(problem, Model(self.head), states)


def make() -> Synthetic:
    """Return the synthetic states of a fixed seed."""
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(5), 23)[:103]
    head_VE = rng.normal(size=(211, 17)).astype(np.float32)
    head_VE[:, 0] = -30  # Moves all logits far from 0, as trained heads do.
    means_CE = rng.normal(size=(5, 17))

    def states(hidden_NE: np.ndarray) -> lm.States:
        hidden_NE = hidden_NE.astype(np.float32)
        hidden_NE[:, 0] = 1
        logits_NV = hidden_NE.astype(np.float64) @ head_VE.astype(np.float64).T
        log_z_N = special.logsumexp(logits_NV, axis=-1)
        return lm.States(jnp.asarray(hidden_NE), jnp.asarray(log_z_N, jnp.float32))

    return Synthetic(
        head=head_lib.Head(jnp.asarray(head_VE)),
        label_tokens=[7, 199, 0, 61, 113],
        y=y,
        anchors=states(means_CE[y] + 0.6 * rng.normal(size=(len(y), 17))),
        queries=states(means_CE[np.arange(NUM_QUERIES) % 5] + 0.6 * rng.normal(size=(NUM_QUERIES, 17))),
        content_free=states(rng.normal(size=(3, 17))),
    )


def options_of(name: str, **changes: Any) -> Any:
    """Return the default options of a method with some changes."""
    return dataclasses.replace(all_methods.get(name).options(all_methods.MethodOptions()), **changes)


def predict(name: str, inputs: method.Inputs, **changes: Any) -> method.Prediction:
    """Return the prediction of a method with its default options and some changes."""
    return all_methods.get(name).predict(inputs, options_of(name, **changes))


def normalised(scores: np.ndarray) -> np.ndarray:
    """Return scores divided by their sum over the last axis."""
    return scores / scores.sum(-1, keepdims=True)
