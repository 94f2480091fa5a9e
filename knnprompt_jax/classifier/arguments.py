"""The options and arguments of a classifier (X, y, a prior), and its predictions."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from knnprompt_jax.classifier import ESTIMATE
from knnprompt_jax.classifier.experts import PoolOptions
from knnprompt_jax.common import errors, options
from knnprompt_jax.datastore import StoreOptions
from knnprompt_jax.datastore.search import VoteOptions
from knnprompt_jax.inference import lm
from knnprompt_jax.inference.prompts import PromptOptions
from knnprompt_jax.tasks import columns
from knnprompt_jax.tasks.columns import is_empty, is_number, rows_of, whole_number
from knnprompt_jax.tasks.task import Example, Task

AUTO: Any = "auto"  # A value that is chosen for the rows.
UNIFORM = "uniform"


class _ClassifierOptions(PromptOptions):
    """Options of both classifiers."""

    random_state: int = options.option(0, "Seed of the draw of demonstrations.", least=0)
    store_options: StoreOptions = options.argument(StoreOptions(), "The kind of the store of the anchors.")


class PublishedOptions(_ClassifierOptions, VoteOptions):
    """Options of `KNNPrompting`; the defaults are those of the paper."""

    CHANGEABLE: ClassVar = ("k", "distance")  # After a fit.

    demo_shots: int | None = options.argument(
        None, "Demonstrations per class, at most half of its rows; None: as many as the context holds."
    )


class AutoOptions(_ClassifierOptions, PoolOptions):
    """Options of `AutoClassifier`."""

    CHANGEABLE: ClassVar = ("class_prior",)

    demo_shots: Any = options.argument(
        AUTO, "Demonstrations per class; several numbers: a view for each; auto: at most 16, and 0."
    )
    class_prior: Any = options.argument(
        None,
        'Shares of classes among the texts: "uniform", "estimate" from `unlabelled`, a share for each label, or None, '
        "those of the rows.",
    )


def check_model(model: Any) -> None:
    """Raise UserError unless this is a language model."""
    if not isinstance(model, lm.LanguageModel):
        raise errors.UserError(f"model: a {type(model).__name__}; give a language model, such as kp.demo_model()")


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Predictions for Q texts.

    Attributes:
      labels: [Q], of y's type; None where the classifier abstains.
      probabilities: of the classes [Q, C], in the order of `classes_`.
      distances: of the neighbours [Q, k], nearest first, in the unit of the classifier's distance.
      ids: of the neighbours [Q, k], as in `anchors_`.
      novelty: p-values [Q], small for texts that are unlike the train rows; None if they were not computed.
      is_novel: whether each text [Q] was left out because of its p-value; None as `novelty`.
    """

    labels: np.ndarray
    probabilities: np.ndarray
    distances: np.ndarray
    ids: np.ndarray
    novelty: np.ndarray | None = None
    is_novel: np.ndarray | None = None

    def abstaining(self, threshold: float) -> "Predictions":
        """Replace each label of a lower probability than `threshold` by None."""
        if not threshold:
            return self
        labels = self.labels.astype(object)
        labels[self.probabilities.max(-1, initial=0) < threshold] = None
        return dataclasses.replace(self, labels=labels)

    def rejecting(self, novelty_Q: np.ndarray, threshold: float | None) -> "Predictions":
        """Add p-values of novelty; replace the label of each text with at most `threshold`, if given, by None."""
        is_novel_Q = novelty_Q <= (threshold or 0)
        labels = self.labels
        if threshold:
            labels = labels.astype(object)
            labels[is_novel_Q] = None
        return dataclasses.replace(self, labels=labels, novelty=novelty_Q, is_novel=is_novel_Q)

    @property
    def outcomes(self) -> list[str]:
        """The outcome of each text [Q]: "answered", "uncertain" (a low probability) or "novel"."""
        outcomes_Q = np.where([label is None for label in self.labels], "uncertain", "answered")
        return list(np.where(np.asarray(self.is_novel), "novel", outcomes_Q).tolist())


def queries(task: Task, X: Any) -> list[Example]:
    """Return examples without labels; raise UserError, with the row, where a field is missing or empty."""
    return [
        Example(task.fields_of(f"row {index}", row), "", index, f"row {index}")
        for index, row in enumerate(rows_of(X, task.fields))
    ]


def labelled(task: Task, X: Any, y: Any) -> list[Example]:
    """Return labelled examples, numbered from 0.

    Raises:
      UserError: as `queries`; a missing or unknown label; X and y of different lengths.
    """
    labels = label_list(y)
    examples = queries(task, X)
    columns.check_paired(len(examples), len(labels))
    return [
        dataclasses.replace(example, label=task.label_of(example.place, label))
        for example, label in zip(examples, labels, strict=True)
    ]


def label_list(y: Any) -> list[Any]:
    """Return labels as a list; raise UserError unless there can be one for each row."""
    is_table = hasattr(y, "columns") or getattr(y, "ndim", 1) != 1
    if is_table:
        raise errors.UserError(f"y is a {type(y).__name__}: give a label for each row, as a list or one column")
    return columns.as_list("y", y)


def labels_like(task: Task, y: Iterable[Any]) -> tuple[Any, ...]:
    """Return the task's labels, in class order, as values of y's type: integers, booleans or strings.

    Whole numbers as floats count as integers. Missing labels, whose rows were left out, do not count.
    """
    values = [value for value in y if not is_empty(value)]
    if all(isinstance(value, bool | np.bool_) for value in values) and set(task.labels) <= {"False", "True"}:
        return tuple(label == "True" for label in task.labels)
    are_numbers = all(is_number(label) and str(int(label)) == label for label in task.labels)
    if are_numbers and all(whole_number(value) is not None for value in values):
        return tuple(map(int, task.labels))
    return task.labels


def sorted_order(labels_C: np.ndarray) -> np.ndarray:
    """Return the classes [C] in the order of their sorted labels, which is scikit-learn's."""
    return np.argsort(labels_C, kind="stable")


def prior(given: Any, labels_C: np.ndarray, estimated: Sequence[float] = ()) -> np.ndarray | None:
    """Return the share of each class [C], in class order, from a `class_prior`.

    Args:
      given: None, "uniform", "estimate", a mapping from label to share, or shares in the order of the sorted labels.
      estimated: the shares that texts without labels give, in class order.

    Raises:
      UserError: not a share of 0 or more for each class, only zeros, or an estimate without such texts.
    """
    if given is None:
        return None
    if isinstance(given, str) and given == ESTIMATE and len(estimated):
        return np.array(estimated)
    labels = list(map(str, labels_C.tolist()))
    try:
        if isinstance(given, str) and given == UNIFORM:
            by_label: Any = dict.fromkeys(labels, 1)
        elif hasattr(given, "items"):  # The order of a pandas Series is its own.
            by_label = given
        else:
            by_label = dict(zip(labels_C[sorted_order(labels_C)].tolist(), given, strict=True))
        shares = {str(label): float(share) for label, share in by_label.items()}
        shares_C = np.array([shares.pop(label) for label in labels])
        is_valid = not shares and np.isfinite(shares_C).all() and (shares_C >= 0).all() and shares_C.sum() > 0
    except (TypeError, ValueError, LookupError):
        is_valid = False
    if not is_valid:
        advice = f"a share of 0 or more for each of {', '.join(labels)}"
        choices = f"{UNIFORM!r}, {ESTIMATE!r} (if fitted with unlabelled texts), None, or {advice}"
        raise errors.UserError(f"class_prior={' '.join(repr(given).split())}: choose {choices}")
    return shares_C / shares_C.sum()
