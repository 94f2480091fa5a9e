"""What a method is to a run: what it needs, whether it applies, and how it predicts."""

import dataclasses
import functools
import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from knnprompt_jax import errors, lm
from knnprompt_jax.methods import base
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.prompts import layout
from knnprompt_jax.tasks.splits import FewShotSplit
from knnprompt_jax.tasks.task import Example, Task


@dataclasses.dataclass(frozen=True)
class Problem:
    """One split of one task and the rows to classify: all that is known before any weight is loaded.

    `label_token` says by which of its tokens a label word is read, as for `layout.label_ids`; `truncation` what becomes of
    prompts that are too long, as for `layout.lay_out`; `logit_cap` at what the model caps its logits, if it does (see `models.head`).
    """

    task: Task
    split: FewShotSplit
    evaluation: Sequence[Example]
    tokenize: layout.Tokenize
    label_token: str = "last"
    truncation: str = "left"
    logit_cap: float | None = None

    @functools.cached_property
    def label_ids(self) -> list[int]:
        """The token by which each class is read; raises UserError where two classes share one."""
        return layout.label_ids(self.task, self.tokenize, self.label_token)


UNLOADED: Any = None  # In the place of what the weights give, where a constructor only checks options.

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
    def head(self) -> head_lib.Head:
        return self.model.head

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
    """What a method says of the evaluation rows.

    Attributes:
      classes_Q: classes [Q].
      probabilities_QC: their probabilities [Q, C], where the method has any.
      note: shown beside the result.
      candidates: accuracies of the prompts or templates of which the best on the evaluation rows was kept, if any were.
      truncated: prompts or texts of the method's own passes that were too long and cut.
    """

    classes_Q: np.ndarray
    probabilities_QC: np.ndarray | None = None
    note: str = ""
    candidates: tuple[float, ...] = ()
    truncated: int = 0


def always(problem: Problem) -> None:
    """The method applies to every problem."""
    del problem


def anything(problem: Problem, **options: Any) -> None:
    """The method runs with any values of its options."""
    del problem, options


def check_package(name: str) -> None:
    """Raises UserError where a library that only some methods use is not installed."""
    if importlib.util.find_spec(name) is None:
        raise errors.UserError(f"it needs {name}: pip install -e '.[methods]'")


def label_words_differ(problem: Problem) -> None:
    """Raises UserError where two classes would be read by the same token."""
    _ = problem.label_ids


def label_words_are_tokens(problem: Problem) -> None:
    """Raises UserError where two classes share a token, or where the last of several would stand for its label word.

    A first token's probability bounds the word's; a last token's, with those before it missing, says nothing of it.
    """
    label_words_differ(problem)
    words = problem.task.label_words
    special = len(problem.tokenize([""])[0])
    for word, tokens in zip(words, problem.tokenize([f" {word}" for word in words]), strict=True):
        if problem.label_token == "last" and len(tokens) - special > 1:
            raise errors.UserError(
                f"the label word {word!r} of task {problem.task.name!r} has {len(tokens) - special} tokens, and the last "
                "one's probability is not the word's: choose label_token='first' or other label words"
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
    prepare: Callable[..., None] = anything,
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
    return Method(name, title, run, (queries, *needs), options | overrides, check, prepare)
