"""Synthetic states with their float64 distributions, and a problem over a tokenizer of single characters."""

import dataclasses
import types
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from knnprompt_jax import errors, lm
from knnprompt_jax.methods import calibrations, method, registry
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.settings import methods
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.splits import FewShotSplit
from knnprompt_jax.tasks.task import Example, Task

WORDS = ("red", "blue", "green", "grey", "pink")


def tokenize_words(tokens: dict[str, list[int]]) -> Callable:
    """Return a tokenizer of words, which may follow a colon; other texts have a token per character."""

    def tokenize(texts):
        texts = [text.removeprefix(":") for text in texts], [[99] * text.startswith(":") for text in texts]
        return [colon + tokens.get(text, [9] * len(text)) for text, colon in zip(*texts, strict=True)]

    return tokenize


@dataclasses.dataclass(eq=False)
class Model:
    """A language model with a head alone."""

    head: head_lib.Head
    tokenize: Callable
    dtype: str = "float32"
    identity = lm.Identity("", "", "float32", False, 0)
    config = types.SimpleNamespace(num_layers=3)


@dataclasses.dataclass(frozen=True)
class Synthetic:
    """A random head, N anchors around a mean state for each class, Q queries, and three content-free prompts."""

    head: head_lib.Head
    label_ids: list[int]
    y: np.ndarray
    anchors: lm.States
    queries: lm.States
    content_free: lm.States

    def log_p(self, states: lm.States) -> np.ndarray:
        """log p [N, V] in float64, from hidden states and head alone."""
        logits_NV = np.asarray(states.hidden_NE, np.float64) @ np.asarray(self.head.rows_VE, np.float64).T
        return special.log_softmax(logits_NV, axis=-1)

    def context(
        self, y: np.ndarray | None = None, labels: str = "01234", queries: slice = slice(None)
    ) -> method.Context:
        """Return the anchors and queries as those of a task; classes `y` of the first anchors replace their own."""
        y = self.y if y is None else y
        ids = dict(zip(WORDS, self.label_ids, strict=True))
        task = Task("five", ("text",), "{text}:", tuple(labels), WORDS[: len(labels)])
        anchors = tuple(Example({"text": f"a{row}"}, labels[label], row) for row, label in enumerate(y))
        rows = [Example({"text": f"q{row}"}, labels[0], row) for row in range(len(self.queries[queries]))]
        split = FewShotSplit((), anchors, seed=1, shots=21, demo_shots=0, class_counts={}, warnings=())
        problem = method.Problem(task, split, rows, tokenize_words({f" {word}": [id_] for word, id_ in ids.items()}))
        states = {method.anchors: self.anchors[: len(y)], method.queries: self.queries[queries]}
        states |= dict.fromkeys((calibrations.content_free_queries, calibrations.domain_queries), self.content_free)
        return method.Context(problem, Model(self.head, problem.tokenize), states)

    def p_labels(self, states: lm.States) -> np.ndarray:
        """Probabilities of the label words [N, C], not normalised over them."""
        return np.exp(self.log_p(states))[:, self.label_ids]


@pytest.fixture(scope="session")
def synthetic() -> Synthetic:
    rng = np.random.default_rng(0)
    vocabulary, width, y = 211, 17, np.tile(np.arange(5), 23)[:103]
    head_VE = rng.normal(size=(vocabulary, width)).astype(np.float32)
    head_VE[:, 0] = -30  # Moves all logits far from 0, as trained heads do.
    means_CE = rng.normal(size=(5, width))

    def states(hidden_NE: np.ndarray) -> lm.States:
        hidden_NE = hidden_NE.astype(np.float32)
        hidden_NE[:, 0] = 1
        logits_NV = hidden_NE.astype(np.float64) @ head_VE.astype(np.float64).T
        log_z_N = special.logsumexp(logits_NV, axis=-1)
        return lm.States(jnp.asarray(hidden_NE), jnp.asarray(log_z_N, jnp.float32))

    return Synthetic(
        head=head_lib.Head(jnp.asarray(head_VE)),
        label_ids=[7, 199, 0, 61, 113],
        y=y,
        anchors=states(means_CE[y] + 0.6 * rng.normal(size=(len(y), width))),
        queries=states(means_CE[np.arange(13) % 5] + 0.6 * rng.normal(size=(13, width))),
        content_free=states(rng.normal(size=(3, width))),
    )


@pytest.fixture(scope="session")
def predict() -> Callable[..., method.Prediction]:
    """`predict("icl_ensemble", problem, model, combination="vote")`: what a method makes of the prompts that it needs."""

    def run(
        name: str, problem: method.Problem, model: lm.LanguageModel | None = None, /, **options
    ) -> method.Prediction:
        chosen = registry.get(name)
        settings = dataclasses.replace(chosen.options(methods.MethodOptions()), **options)
        if obstacle := chosen.obstacle(problem, settings):
            raise errors.UserError(obstacle)
        states = {}
        context = method.Context(problem, model, states)
        for needed in chosen.needs:
            of_set = dataclasses.replace(problem, evaluation=needed(problem))
            states[needed] = context.read(
                of_set.build_prompts(problem.split.demonstrations, model.context), "shared pass"
            )
        return chosen.run(context, settings)

    return run


@pytest.fixture
def problem() -> method.Problem:
    """Two fields, three classes; a token a character, and no special token."""
    task = Task("pairs", ("first", "second"), "{first}/{second}:", ("0", "1", "2"), ("a", "b", "c"))
    train = [
        Example({"first": f"One {number} Two", "second": f"word{number}"}, label, number)
        for number, label in enumerate("0101012010101")
    ]
    split = splits.draw(train, task, shots=4, demo_shots=1, seed=3)
    evaluation = [Example({"first": text, "second": "x"}, "0", row) for row, text in enumerate(["q", "longer", ""])]
    return method.Problem(task, split, evaluation, lambda texts: [[ord(c) for c in text] for text in texts])
