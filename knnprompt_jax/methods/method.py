"""The interface of methods: their names, options and needs, the problem that they solve, and their predictions."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from scipy import special

from knnprompt_jax.common import errors, parallel, progress
from knnprompt_jax.common import options as options_lib
from knnprompt_jax.datastore import StoreOptions, distances
from knnprompt_jax.inference import lm
from knnprompt_jax.inference import states as states_lib
from knnprompt_jax.inference.prompts import continuations, layout
from knnprompt_jax.models import encoders
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.splits import FewShotSplit
from knnprompt_jax.tasks.task import Example, Task


@dataclasses.dataclass(frozen=True)
class Problem:
    """One split of one task and the rows to classify; everything that is known before any weights are loaded.

    Attributes:
        task: the task.
        split: the demonstrations and anchors.
        evaluation: the rows to classify.
        tokenize: the model's tokenizer.
        label_token: the token that represents a label word, as in `layout.label_tokens`.
    """

    task: Task
    split: FewShotSplit
    evaluation: Sequence[Example]
    tokenize: layout.Tokenize
    label_token: str = "last"

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the task and its rows: demonstrations, anchors and the rows to classify."""
        parts = [
            self.task.digest,
            splits.rows_digest(self.split.demonstrations),
            splits.rows_digest(self.split.anchors),
            splits.rows_digest(self.evaluation),
        ]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()

    @property
    def train_rows(self) -> list[Example]:
        """The split's demonstrations, then its anchors."""
        return [*self.split.demonstrations, *self.split.anchors]

    def build_prompts(
        self, demonstrations: Sequence[Example], examples: Sequence[Example], context: int
    ) -> layout.Prompts:
        """Return the prompt of each example after `demonstrations`, for a model that reads `context` tokens."""
        return layout.build_prompts(self.task, demonstrations, examples, self.tokenize, context)

    @functools.cached_property
    def label_tokens(self) -> list[int]:
        """The token that represents each class; raises UserError if two classes share a token."""
        return layout.label_tokens(self.task, self.tokenize, self.label_token)

    @functools.cached_property
    def word_tokens(self) -> list[list[int]]:
        """The tokens of each label word after a space, without special tokens."""
        return layout.tokenize_continuations(self.tokenize, [f" {word}" for word in self.task.label_words])


@dataclasses.dataclass(frozen=True)
class PromptSet:
    """Prompts of the shared pass: some examples of a problem, each after the split's demonstrations.

    Attributes:
        name: what the examples are.
        examples_of: returns the examples of a problem.
    """

    name: str
    examples_of: Callable[[Problem], Sequence[Example]]


ANCHORS = PromptSet("anchors", lambda problem: problem.split.anchors)
QUERIES = PromptSet("queries", lambda problem: problem.evaluation)


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The inputs of a method.

    Attributes:
        problem: the split and the rows to classify.
        model: the language model.
        states: the states of each set of prompts that the method needs, in the order of its examples and replicated
            over the devices.
        store_options: the options of a store of anchors.
        cache: the run's cache of states, for the method's own passes.
    """

    problem: Problem
    model: lm.LanguageModel
    states: Mapping[PromptSet, lm.States]
    store_options: StoreOptions = StoreOptions()
    cache: states_lib.Cache | None = None

    @property
    def num_classes(self) -> int:
        return self.problem.task.num_classes

    @property
    def seed(self) -> int:
        return self.problem.split.seed

    @property
    def y(self) -> np.ndarray:
        """The class indices [N] of the anchors."""
        return self.classes(self.problem.split.anchors)

    def classes(self, examples: Sequence[Example]) -> np.ndarray:
        """Return the class indices [N] of labelled examples."""
        return np.array([self.problem.task.class_index(example.label) for example in examples], int)

    def label_log_p(self, states: lm.States) -> np.ndarray:
        """Return log p of the label words [N, C] in nats, float64, not normalised over the label words."""
        return np.asarray(self._label_log_p(states), np.float64)

    def label_probabilities(self, states: lm.States) -> np.ndarray:
        """Return the probabilities of the label words [N, C], normalised over them."""
        return np.asarray(jax.nn.softmax(self._label_log_p(states)))

    def _label_log_p(self, states: lm.States) -> jax.Array:
        return distances.label_log_probabilities(self.model.head, states, self.problem.label_tokens)

    def read_sets(self, sets: Sequence[layout.Prompts], title: str) -> Iterator[lm.States]:
        """Yield the states of each set of prompts, in order and replicated over the devices.

        All sets share their compiled programs.
        """
        titles = [self._title(title)] * len(sets)
        for result in states_lib.read_sets(self.model, sets, self.cache, titles):
            yield parallel.replicate(result.states)

    def score(self, texts: continuations.Continuations, title: str) -> list[np.ndarray]:
        """Return log p (nats) of every target token, one array per text."""
        with progress.bar(texts.num_texts, self._title(title)) as report:
            return self.model.score(texts, report).log_p

    def _title(self, title: str) -> str:
        return f"seed {self.seed}, {title}"


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A method's predictions for the rows to classify.

    Attributes:
        classes_Q: class indices [Q].
        probabilities_QC: class probabilities [Q, C], where the method has them.
        note: a remark that is printed with the result.
        candidates: the accuracy of each candidate, if the method kept the one that is best on the evaluation rows.
        prompts: the number of prompts or texts in the method's own passes.
        truncated: the number of these that were truncated.
        tokens: the number of tokens in the method's own passes.
    """

    classes_Q: np.ndarray
    probabilities_QC: np.ndarray | None = None
    note: str = ""
    candidates: tuple[float, ...] = ()
    prompts: int = 0
    truncated: int = 0
    tokens: int = 0

    @classmethod
    def from_probabilities(
        cls, probabilities_QC: np.ndarray, sets: Sequence[layout.Prompts] = (), **further: Any
    ) -> "Prediction":
        """Predict the most probable class; ties go to the lowest class index.

        Args:
            probabilities_QC: class probabilities [Q, C].
            sets: the prompts of the method's own passes.
            further: further attributes.
        """
        return cls(
            probabilities_QC.argmax(-1),
            probabilities_QC,
            prompts=sum(prompts.num_prompts for prompts in sets),
            truncated=sum(prompts.num_truncated for prompts in sets),
            tokens=sum(prompts.num_tokens for prompts in sets),
            **further,
        )

    @classmethod
    def from_scores(
        cls, scores_QC: np.ndarray, texts: continuations.Continuations | None = None, **further: Any
    ) -> "Prediction":
        """Predict the class with the highest score, for example log p; probabilities are the scores' softmax.

        Args:
            scores_QC: a score of each class [Q, C].
            texts: the texts of the method's own passes.
            further: further attributes.
        """
        if texts:
            further |= {"prompts": texts.num_texts, "truncated": texts.num_truncated, "tokens": texts.num_tokens}
        return cls(scores_QC.argmax(-1), special.softmax(scores_QC, axis=-1), **further)


def check_label_words_differ(problem: Problem, _: Any = None) -> None:
    """Raise UserError if two classes share the token that represents them."""
    layout.label_tokens(problem.task, problem.tokenize, problem.label_token)


def check_label_words_are_tokens(problem: Problem, _: Any = None) -> None:
    """Raise UserError if two classes share a token, or if the last of several tokens would represent a label word.

    The probability of a first token bounds that of the label word. The probability of a last token does not.
    """
    check_label_words_differ(problem)
    for word, tokens in zip(problem.task.label_words, problem.word_tokens, strict=True):
        if problem.label_token == "last" and len(tokens) > 1:
            reason = f"{word!r} has {len(tokens)} tokens, and the last one's probability is not the word's"
            raise errors.UserError(f"the label word {reason}: choose --label_token=first or other label words")


@dataclasses.dataclass(frozen=True)
class Method:
    """A method: its names, its options and its code.

    Attributes:
        name: the name on the command line.
        title: the name in tables.
        predict: predicts the rows to classify from its inputs and the options.
        options_kind: the class of its options; their values are a group of flags, as `--knn.k=5`.
        needs: the prompts of the shared pass whose states it uses.
        check: raises UserError if the method does not apply to a problem with the given options. It is called before
            weights are loaded.
        rows_used: the train rows that it uses. "demonstrations": the split's demonstrations. "random": random sets of
            that size. "split": demonstrations and anchors. "train": all rows of the split; anchors are not required.
        model_name: returns the name of the sentence encoder that its options name, or "". The encoder must load, and
            its files enter the key of a run.
        printed_as: the names in the paper's tables.
        excluded_because: why "all" excludes the method; empty if "all" includes it.
        variant_of: the name of the method whose options and code it uses; empty if they are its own.
        preset: the values of options that the name of a variant sets.
        code_suffix: a suffix that distinguishes other code under the same name in the key of a run.
    """

    name: str
    title: str
    predict: Callable[[Inputs, Any], Prediction]
    options_kind: type[options_lib.Options] = options_lib.Options
    needs: tuple[PromptSet, ...] = ()
    check: Callable[[Problem, Any], None] = lambda problem, options: None
    rows_used: str = "split"
    model_name: Callable[[Any], str] = lambda options: ""
    printed_as: tuple[str, ...] = ()
    excluded_because: str = ""
    variant_of: str = ""
    preset: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    code_suffix: str = ""

    @property
    def base(self) -> str:
        """The name of the method whose options and code it uses."""
        return self.variant_of or self.name

    def variant(
        self, name: str, title: str, *, printed_as: tuple[str, ...] = (), excluded_because: str = "", **preset: Any
    ) -> "Method":
        """Return a method with this code whose name sets some options."""
        return dataclasses.replace(
            self,
            name=name,
            title=title,
            printed_as=printed_as,
            excluded_because=excluded_because,
            variant_of=self.base,
            preset=preset,
        )

    def options(self, settings: Any) -> Any:
        """Return its options in `settings`, an `all_methods.MethodOptions`, with the values of its preset."""
        return dataclasses.replace(getattr(settings, self.base), **self.preset)

    def obstacle(self, problem: Problem, options: options_lib.Options) -> str:
        """Return why the method does not apply to a problem with these options; "" if it applies."""
        if ANCHORS in self.needs and not problem.split.anchors:
            return "there are no anchors: choose more shots"
        try:
            self.check(problem, options)
            if encoder := self.model_name(options):
                encoders.describe(encoder)
        except errors.UserError as error:
            return str(error)
        return ""
