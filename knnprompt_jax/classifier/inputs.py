"""The inputs and outputs of a classifier: X, y, a prior, and its predictions."""

import dataclasses
import numbers
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from knnprompt_jax import errors, lm
from knnprompt_jax.tasks import columns
from knnprompt_jax.tasks.columns import is_empty, is_number, label_string, rows_of, whole
from knnprompt_jax.tasks.task import Example, Task

UNIFORM = "uniform"
ANSWERED = "answered"
UNCERTAIN = "uncertain"
NOVEL = "novel"
OUTCOMES = (ANSWERED, UNCERTAIN, NOVEL)
"""The outcomes of a text: a label, or none because its probability is low, or because it is unlike the train rows."""


def check_model(model: Any) -> None:
    """Raise UserError unless this is a language model."""
    if not isinstance(model, lm.LanguageModel):
        raise errors.UserError(
            f"model: a {type(model).__name__} is given; give a language model, such as "
            f'kp.demo_model() or kp.LanguageModel.from_pretrained("smollm2")'
        )


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
        """Replace each label of a lower probability than `threshold` by None; raise UserError unless it is 0 to 1."""
        if not isinstance(threshold, numbers.Real) or not 0 <= threshold <= 1:
            raise errors.UserError(f"abstain={threshold!r}: choose a probability from 0 to 1")
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
        """The outcome of each text [Q], one of `OUTCOMES`."""
        is_novel = [False] * len(self.labels) if self.is_novel is None else self.is_novel.tolist()
        return [
            NOVEL if novel else UNCERTAIN if label is None else ANSWERED
            for label, novel in zip(self.labels.tolist(), is_novel, strict=True)
        ]


def queries(task: Task, X: Any) -> list[Example]:
    """Return examples without labels; raise UserError, with the row, where a field is missing or empty."""
    return [
        Example(task.fields_of(f"row {index}", row), "", index, f"row {index}")
        for index, row in enumerate(rows_of(X, task.fields))
    ]


def labelled(task: Task, X: Any, y: Any, first: int = 0) -> list[Example]:
    """Return labelled examples, numbered from `first`.

    Raises:
      UserError: as `queries`; a missing or unknown label; X and y of different lengths.
    """
    rows = rows_of(X, task.fields)
    labels = label_list(y)
    columns.check_paired(len(rows), len(labels))
    examples = []
    for index, (row, label) in enumerate(zip(rows, labels, strict=True)):
        place = f"row {index}"
        examples.append(Example(task.fields_of(place, row), task.label_of(place, label), first + index, place))
    return examples


def label_list(y: Any) -> list[Any]:
    """Return labels as a list; raise UserError unless there can be one for each row."""
    is_table = hasattr(y, "columns") or getattr(y, "ndim", 1) != 1
    if is_table:
        raise errors.UserError(f"y is a {type(y).__name__}: give a label for each row, as a list or one column")
    return columns.as_list("y", y)


def label_strings(labels: Iterable[Any]) -> list[str]:
    """Convert labels to strings as a task writes them; raise UserError on one that is no text, integer or boolean."""
    return [label_string(f"label {index}", label) for index, label in enumerate(labels)]


def labels_like(task: Task, y: Iterable[Any]) -> tuple[Any, ...]:
    """Return the task's labels, in class order, as values of y's type: integers, booleans or strings.

    Whole numbers as floats count as integers. Missing labels, whose rows were left out, do not count.
    """
    values = [value for value in y if not is_empty(value)]
    if all(isinstance(value, bool | np.bool_) for value in values) and set(task.labels) <= {"False", "True"}:
        return tuple(label == "True" for label in task.labels)
    are_numbers = all(is_number(label) and str(int(label)) == label for label in task.labels)
    if are_numbers and all(whole(value) is not None for value in values):
        return tuple(map(int, task.labels))
    return task.labels


def label_order(labels_C: np.ndarray) -> np.ndarray:
    """Return the classes [C] in the order of their sorted labels, which is scikit-learn's."""
    return np.argsort(labels_C, kind="stable")


def prior(given: Any, labels_C: np.ndarray) -> np.ndarray | None:
    """Return the share of each class [C], in class order, from a `class_prior`.

    Args:
      given: None, "uniform", a mapping from label to share, or shares in the order of the sorted labels.

    Raises:
      UserError: another number of shares than classes, a negative share, or only zeros.
    """
    if given is None:
        return None
    if hasattr(given, "to_dict"):  # A pandas Series: its order is not that of the labels.
        given = given.to_dict()
    message = f"class_prior={' '.join(repr(given).split())}"
    if isinstance(given, str) and given == UNIFORM:
        return np.full(len(labels_C), 1 / len(labels_C))
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise errors.UserError(f"{message}: choose {UNIFORM!r}, a share for each label, or None")
    if isinstance(given, Mapping):
        by_label = {str(label): share for label, share in given.items()}
        if set(by_label) != set(map(str, labels_C.tolist())):
            raise errors.UserError(f"{message}: give a share for each of {', '.join(map(str, labels_C.tolist()))}")
        shares = [by_label[str(label)] for label in labels_C.tolist()]
    else:
        given = [share.item() if np.ndim(share) == 0 and hasattr(share, "item") else share for share in given]
        if len(given) != len(labels_C):
            raise errors.UserError(f"{message}: give {len(labels_C)} shares, one per class")
        shares = [given[index] for index in np.argsort(label_order(labels_C))]
    if wrong := [share for share in shares if not isinstance(share, numbers.Real)]:
        raise errors.UserError(f"{message}: {wrong[0]!r} is not a number")
    shares_C = np.array(shares, float)
    if not (np.isfinite(shares_C).all() and (shares_C >= 0).all() and shares_C.sum() > 0):
        raise errors.UserError(f"{message}: each share must be 0 or more, and at least one above 0")
    return shares_C / shares_C.sum()
