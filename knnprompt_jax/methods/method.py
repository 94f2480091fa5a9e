"""What a method is to a run: what it needs and costs, whether it applies, and how it predicts."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from knnprompt_jax import errors, lm
from knnprompt_jax import options as options_lib
from knnprompt_jax.methods import base
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.prompts import layout
from knnprompt_jax.states import AnyCache
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks import splits
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
    def digest(self) -> str:
        """SHA-256 of the task and its rows: demonstrations, anchors and the rows to classify."""
        rows = (self.split.demonstrations, self.split.anchors, self.evaluation)
        parts = [self.task.digest, *map(splits.rows_digest, rows)]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()

    @property
    def train_rows(self) -> list[Example]:
        """The split's demonstrations, then its anchors."""
        return [*self.split.demonstrations, *self.split.anchors]

    def lay_out(self, demonstrations: Sequence[Example], context: int) -> layout.Prompts:
        """A prompt for each row to classify, after demonstrations; `context` is how many tokens the model can read."""
        return layout.lay_out(self.task, demonstrations, self.evaluation, self.tokenize, context, self.truncation)

    @functools.cached_property
    def label_ids(self) -> list[int]:
        """The token by which each class is read; raises UserError where two classes share a token."""
        return layout.label_ids(self.task, self.tokenize, self.label_token)

    @functools.cached_property
    def word_tokens(self) -> list[list[int]]:
        """The tokens of a blank and each label word, without special ones."""
        return [tokens[self.num_special :] for tokens in self.tokenize([f" {word}" for word in self.task.label_words])]

    @functools.cached_property
    def num_special(self) -> int:
        """How many special tokens the tokenizer puts before a text."""
        return len(self.tokenize([""])[0])

    def lengths(self, texts: Sequence[str]) -> np.ndarray:
        """Tokens of each text [N], special ones not counted."""
        return np.array([len(tokens) - self.num_special for tokens in self.tokenize(list(texts))], int)


PromptSet = Callable[[Problem], Sequence[Example]]
"""A set of prompts that the shared pass can read, each after the split's demonstrations; a method names those it needs."""


def anchors(problem: Problem) -> Sequence[Example]:
    return problem.split.anchors


def queries(problem: Problem) -> Sequence[Example]:
    return problem.evaluation


@dataclasses.dataclass(frozen=True)
class Context:
    """What a method predicts from.

    Attributes:
      problem: the split and the rows to classify.
      model: the language model, for passes beside the shared pass.
      states: for each set of prompts that the method needs, its states in the order of its examples.
      store_options: how a method that searches anchors keeps them.
      store: a saved store that stands for the anchors, whose states are then missing.
      cache: where states of prompts are looked up and kept.
    """

    problem: Problem
    model: lm.LanguageModel
    states: Mapping[PromptSet, lm.States]
    store_options: store_lib.StoreOptions = store_lib.StoreOptions()
    store: store_lib.Store | None = None
    cache: AnyCache | None = None

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
      prompts: prompts or texts that were read beside the shared pass.
      truncated: how many of these were too long and cut.
      tokens: about how many tokens a model has read otherwise than by passes of `Context.model`; those of a training step count thrice.
      datastore: what the anchors took, where they lay and how they were searched, if they were.
      decided_by_rounding_Q: whether a class is one that another machine, dtype or arrangement may give otherwise [Q]
        (`classifier.rounding`); None where the method does not say.
    """

    classes_Q: np.ndarray
    probabilities_QC: np.ndarray | None = None
    note: str = ""
    candidates: tuple[float, ...] = ()
    prompts: int = 0
    truncated: int = 0
    tokens: int = 0
    datastore: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    decided_by_rounding_Q: np.ndarray | None = None


class Cost(NamedTuple):
    """Prompts that a model reads and, roughly, their tokens."""

    prompts: int
    tokens: int


@dataclasses.dataclass(frozen=True)
class Reader:
    """What is known of a model before its weights are loaded: how many tokens texts have, and how many it can read.

    `lengths` gives the tokens [N] of N texts, special ones not counted.
    """

    lengths: Callable[[Sequence[str]], np.ndarray]
    context: int

    def demonstration_tokens(self, task: Task, rows: Sequence[Example]) -> int:
        """Tokens of all rows as demonstrations."""
        return int(self.lengths([task.render(row, row.label) + "\n" for row in rows]).sum())

    def query_tokens(self, task: Task, rows: Sequence[Example]) -> int:
        """Tokens of all rows as queries."""
        return int(self.lengths([task.render(row) for row in rows]).sum())


def refuse_nothing(*_: Any) -> None:
    """The check of a method that applies to every problem, with all options."""


def label_words_differ(problem: Problem) -> None:
    """Raises UserError where two classes would be read by the same token."""
    _ = problem.label_ids


def label_words_are_tokens(problem: Problem) -> None:
    """Raises UserError where two classes share a token, or where the last of several would stand for its label word.

    A first token's probability bounds the word's; a last token's, with those before it missing, says nothing of it.
    """
    label_words_differ(problem)
    for word, tokens in zip(problem.task.label_words, problem.word_tokens, strict=True):
        if problem.label_token == "last" and len(tokens) > 1:
            raise errors.UserError(
                f"the label word {word!r} of task {problem.task.name!r} has {len(tokens)} tokens, and the last "
                "token's probability is not the word's: choose label_token='first' or other label words"
            )


@dataclasses.dataclass(frozen=True)
class Method:
    """A method by name.

    Attributes:
      name: what it is called on the command line.
      title: what it is called in tables.
      source: who published it, where.
      run: predicts the problem's evaluation rows from a Context, with its options.
      needs: the sets of prompts whose states it reads.
      settings: the declaration of its options.
      check: raises UserError where the method does not apply to a problem.
      prepare: raises UserError where it cannot run on a problem with the options given, before the run's weights load.
      cost: what it reads beside the shared pass, estimated before the run's weights load.
      by_name: why "all" leaves the method out, so that it runs only where it is named; empty where "all" has it.
      sees: what it makes of a split's m shots per class. "demonstrations": it sees these alone, so that m is M_T; "draws":
        each of its prompts shows M_T of them; "shots": it sees demonstrations and anchors; "train": all are rows to train on.
      own_model: it trains a model of its own and needs no language model.
      searches: it can search a saved store in the place of its anchors.
      printed_as: what the paper's tables call it.
      look: number of its line's style in figures, 0 to 7; methods that are usually drawn together have different ones.
    """

    name: str
    title: str
    source: str
    run: Callable[[Context, Any], Prediction]
    needs: tuple[PromptSet, ...] = ()
    settings: type[options_lib.Options] = options_lib.Options
    check: Callable[[Problem], object] = refuse_nothing
    prepare: Callable[[Problem, Any], None] = refuse_nothing
    cost: Callable[[Problem, Reader, Any], Cost] = lambda problem, reader, settings: Cost(0, 0)
    by_name: str = ""
    sees: str = "shots"
    own_model: bool = False
    searches: bool = False
    printed_as: tuple[str, ...] = ()
    look: int = 7


def on_states(
    name: str,
    title: str,
    fitted: Callable[[Context, Any], base.StateClassifier],
    settings: type[options_lib.Options] = options_lib.Options,
    *,
    needs: Sequence[PromptSet] = (),
    **declared: Any,
) -> Method:
    """The method of a classifier that reads states alone, `declared` as for `Method`.

    `fitted` makes the fitted classifier from a Context and options; `needs` are the sets of prompts beside the queries.
    """

    def run(context: Context, chosen: options_lib.Options) -> Prediction:
        classifier, states = fitted(context, chosen), context.states[queries]
        return Prediction(classifier.predict(states), classifier.predict_proba(states))

    return Method(name, title, run=run, needs=(queries, *needs), settings=settings, **declared)


def with_defaults(settings: type[options_lib.Options], **defaults: Any) -> type[options_lib.Options]:
    """The same options with other defaults."""
    changed = [
        (field.name, field.type, dataclasses.field(default=defaults[field.name], metadata=field.metadata))
        for field in dataclasses.fields(settings)
        if field.name in defaults
    ]
    return dataclasses.make_dataclass(settings.__name__, changed, bases=(settings,), frozen=True)
