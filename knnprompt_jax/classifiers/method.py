"""What a method is to a run: what it needs, whether it applies, and how it predicts."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from knnprompt_jax import errors, lm
from knnprompt_jax.classifiers import base
from knnprompt_jax.prompts import layout
from knnprompt_jax.tasks.splits import FewShotSplit
from knnprompt_jax.tasks.task import Example, Task

LABEL_TOKENS = ("one", "last")


@dataclasses.dataclass(frozen=True)
class Problem:
    """One split of one task and the rows to classify: all that is known before any weight is loaded.

    `label_tokens` says what the methods do that calibrate label words' probabilities where a word has several tokens:
    refuse ("one"), or read the last, as in-context learning does in the paper's released code ("last").
    """

    task: Task
    split: FewShotSplit
    evaluation: Sequence[Example]
    tokenize: layout.Tokenize
    label_tokens: str = "one"

    def __post_init__(self) -> None:
        if self.label_tokens not in LABEL_TOKENS:
            raise errors.UserError(f"label_tokens={self.label_tokens!r}: choose from {', '.join(LABEL_TOKENS)}")

    @functools.cached_property
    def label_ids(self) -> list[int]:
        """The token by which each class is read; raises UserError where two classes share one."""
        return layout.label_ids(self.task, self.tokenize)


Prompts = Callable[[Problem], Sequence[Example]]
"""A set of prompts that the shared pass can read, each after the split's demonstrations; a method names those it needs."""


def anchors(problem: Problem) -> Sequence[Example]:
    return problem.split.anchors


def queries(problem: Problem) -> Sequence[Example]:
    return problem.evaluation


@dataclasses.dataclass(frozen=True)
class Context:
    """What a method predicts from: the problem, the model for passes of its own, and the states of the shared pass.

    `states` holds, for each set of prompts that the method needs, its states in the order of its examples.
    """

    problem: Problem
    model: lm.LanguageModel
    states: Mapping[Prompts, lm.States]

    @property
    def head_VE(self) -> jax.Array:
        return self.model.head_VE

    @property
    def label_ids(self) -> list[int]:
        return self.problem.label_ids

    @property
    def num_classes(self) -> int:
        return self.problem.task.num_classes

    @property
    def seed(self) -> int:
        return self.problem.split.seed

    @property
    def y(self) -> np.ndarray:
        """Classes [N] of the anchors."""
        return self.classes(self.problem.split.anchors)

    def classes(self, examples: Sequence[Example]) -> np.ndarray:
        return np.array([self.problem.task.class_index(example.label) for example in examples], int)


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Classes [Q] and, where the method has any, their probabilities [Q, C]; `note` is shown beside the result."""

    classes_Q: np.ndarray
    probabilities_QC: np.ndarray | None = None
    note: str = ""


def always(problem: Problem) -> None:
    """The method applies to every problem."""
    del problem


def anything(problem: Problem, **options: Any) -> None:
    """The method runs with any values of its options."""
    del problem, options


def label_words_differ(problem: Problem) -> None:
    """Raises UserError where two classes would be read by the same token."""
    _ = problem.label_ids


def label_words_are_tokens(problem: Problem) -> None:
    """Raises UserError where two classes share a token, or where a label word has several and one is needed."""
    label_words_differ(problem)
    words = problem.task.label_words
    special = len(problem.tokenize([""])[0])
    for word, tokens in zip(words, problem.tokenize([f" {word}" for word in words]), strict=True):
        if problem.label_tokens == "one" and len(tokens) - special > 1:
            raise errors.UserError(
                f"the label word {word!r} of task {problem.task.name!r} has {len(tokens) - special} tokens and its "
                "probability is not one token's: choose label_tokens='last' to read the last token alone"
            )


@dataclasses.dataclass(frozen=True)
class Method:
    """A method by name.

    Attributes:
      name: what it is called on the command line.
      title: what it is called in tables.
      run: predicts the problem's evaluation rows, given a Context and the options as keyword arguments.
      needs: the sets of prompts whose states it reads.
      options: the options that `run` takes, with their defaults.
      check: raises UserError where the method does not apply to a problem.
      prepare: raises UserError where it cannot run with the options given, called before the run's weights load.
      by_name: why "all" leaves the method out, so that it runs only where it is named; empty where "all" has it.
    """

    name: str
    title: str
    run: Callable[..., Prediction]
    needs: tuple[Prompts, ...] = ()
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    check: Callable[[Problem], None] = always
    prepare: Callable[..., None] = anything
    by_name: str = ""


def on_states(
    name: str,
    title: str,
    fitted: Callable[..., base.StateClassifier],
    *,
    needs: Sequence[Prompts] = (),
    check: Callable[[Problem], None] = always,
    **overrides: Any,
) -> Method:
    """The method of a classifier that reads states alone.

    `fitted` makes the fitted classifier from a Context; its keyword-only arguments are the method's options, their
    defaults its defaults, unless overridden here.
    """

    def run(context: Context, **options: Any) -> Prediction:
        classifier, states = fitted(context, **options), context.states[queries]
        return Prediction(classifier.predict(states), classifier.predict_proba(states))

    parameters = inspect.signature(fitted).parameters.values()
    options = {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}
    return Method(name, title, run, (queries, *needs), options | overrides, check)
