"""Which k and distance to take: each anchor is classified by all others, without a pass of the model."""

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from knnprompt_jax import errors, tables
from knnprompt_jax.classifier import leave_one_out
from knnprompt_jax.prompts import layout
from knnprompt_jax.store import distances, kernel, search
from knnprompt_jax.store import store as store_lib

if TYPE_CHECKING:
    from knnprompt_jax.classifier.estimator import KNNPrompting

KS = (1, 3, 5, 7, 9, 15, 25, 51)


@dataclasses.dataclass(frozen=True)
class Choice:
    """One setting of a classifier and its accuracy, between 0 and 1."""

    k: int
    distance: str
    accuracy: float


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Leave-one-out accuracies of a fitted classifier.

    Attributes:
      choices: every setting tried.
      num_anchors: how many classifications an accuracy is a mean of.
      warnings: what makes the accuracies less certain or less fair.
    """

    choices: tuple[Choice, ...]
    num_anchors: int
    warnings: tuple[str, ...]

    @property
    def best(self) -> Choice:
        """The setting with the highest accuracy; of equals the smallest k, then the first in the order of `choices`."""
        return min(self.choices, key=lambda choice: (-choice.accuracy, choice.k))

    @property
    def standard_error(self) -> float:
        """Of the best accuracy, as that of independent anchors."""
        accuracy = self.best.accuracy
        return float(np.sqrt(accuracy * (1 - accuracy) / self.num_anchors))

    @property
    def suggestion(self) -> str:
        best = self.best
        return (
            f"k={best.k}, distance={best.distance}: "
            f"{100 * best.accuracy:.1f} ± {100 * self.standard_error:.1f} % (standard error)"
        )

    def __str__(self) -> str:
        cells: dict[str, list[str]] = {}
        for choice in self.choices:
            cells.setdefault(choice.distance, []).append(f"{100 * choice.accuracy:.1f}")
        rows = [[distances.get(name).title, *accuracies] for name, accuracies in cells.items()]
        ks = sorted({choice.k for choice in self.choices})
        return "\n".join(
            [
                f"accuracy in %, each of {self.num_anchors} anchors classified by all others",
                "",
                tables.render(["compared by", *(f"k={k}" for k in ks)], rows),
                "",
                *(f"warning: {warning}" for warning in self.warnings),
                f"suggested: {self.suggestion}; being the best of {len(self.choices)} flatters it a little",
            ]
        )


def tune(classifier: "KNNPrompting", ks: Sequence[int]) -> Tuning:
    """Classifies each anchor of a fitted classifier by all others, by every distance, for all ks that there are anchors for.

    Label words are not compared where they share a token.

    Raises:
      UserError: there are fewer than two anchors, no k between 1 and the number of the others, or a store without states.
    """
    task, store = classifier.task, classifier.store_
    most = len(store) - 1
    if not (fitting := sorted({k for k in ks if 1 <= k <= most})):
        raise errors.UserError(f"ks={tuple(ks)}: choose from 1 to {most}, the number of other anchors")
    states = leave_one_out.states_of(store)
    options = store_lib.StoreOptions(kind="factored", memory_mb=store.memory_mb)
    try:
        label_ids, shared = layout.label_ids(task, classifier.lm.tokenize, classifier.label_token), ""
    except errors.UserError as error:
        label_ids, shared = list(store.codec.label_ids), str(error)
    whole = store_lib.build(options, "", classifier.lm.head, states, store.labels_N, label_ids)
    choices = []
    for distance in whole.distances:
        if shared and distances.get(distance).reads_label_words:
            continue
        nearest = leave_one_out.neighbours(whole, search.SearchOptions(fitting[-1], distance), states)
        for k in fitting:
            voting = {"num_classes": task.num_classes, "tie_break": classifier.tie_break}
            majority_N = kernel.majority(nearest.labels_Qk[:, :k], **voting)
            accuracy = float(np.mean(np.asarray(majority_N) == store.labels_N))
            choices.append(Choice(k, distance, accuracy))
    tuning = Tuning(tuple(choices), len(store), ())
    return dataclasses.replace(tuning, warnings=tuple(_warnings(classifier, tuning.best.k, shared)))


def _warnings(classifier: "KNNPrompting", k: int, shared: str) -> Iterator[str]:
    """What makes the accuracies doubtful; `shared` tells which label words share a token."""
    anchors = classifier.anchors_.values()
    counts = collections.Counter(example.label for example in anchors)
    for label in classifier.task.labels:
        # Of the others of its class, an anchor needs more than half of k to be sure of the vote.
        if 2 * (counts[label] - 1) <= k:
            yield f"class {label!r} has {counts[label]} anchors, too few to be judged at k={k}"
    if len(counts) == 1:
        yield "there is one class only: every answer is right"
    texts = collections.Counter(tuple(example.fields.values()) for example in anchors)
    if repeated := sum(count for count in texts.values() if count > 1):
        yield f"{repeated} anchors have the text of another, which makes them easier than new texts"
    if shared:
        yield f"label words are not compared by: {shared}"
