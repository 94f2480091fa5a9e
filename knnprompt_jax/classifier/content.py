"""The content of a classifier apart from its model's weights, its states and its store: the JSON in its file."""

import codecs
import dataclasses
import hashlib
import json
import math
import numbers
import re
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any

import numpy as np

from knnprompt_jax import errors, lm
from knnprompt_jax.classifier import inputs, schema
from knnprompt_jax.classifier.classifier_options import AUTO, AutoOptions, PublishedOptions
from knnprompt_jax.confidence import novelty
from knnprompt_jax.experts import expert, folds, pool
from knnprompt_jax.experts.pool import Choice
from knnprompt_jax.models import DTYPES
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task

FORMAT = 12
_FILE_OPTIONS = {"label_column": str}  # How the rows' file was read.
AnyOptions = PublishedOptions | AutoOptions
_LARGEST = 1e6  # Of an expert's setting, factor and weight.


@dataclasses.dataclass(frozen=True)
class ViewDemonstrations:
    """The demonstrations of one view: at most `demo_shots` per class, as row numbers in the order of the prompt."""

    demo_shots: int
    rows: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Kept:
    """The parts of a classifier that its JSON has as they are.

    Attributes:
        task: the task of the prompts.
        given_task: the task that the next fit takes, without the classes of later rows; None: it infers one.
        labels: the labels as in y, in class order.
        views: the demonstrations of each view; neighbours are searched for in the first.
        layer: the block whose output is kept beside each state; 0: none.
        num_rows: the number of rows given so far, from which later rows are numbered.
        checked: the numbers of rows whose label a person found right.
        choice: the experts and their weights; None for `KNNPrompting`.
        encoder: the fingerprint of the sentence encoder; empty if there is none.
        model: the identity of the language model.
        file_options: how the file of the rows was read, if there was one: the label column.
        origin: the digest of everything that the fit was made from, as in `origin_of`; "" after a change.
    """

    task: Task
    given_task: Task | None
    labels: tuple[str | int | bool, ...]
    views: tuple[ViewDemonstrations, ...]
    layer: int
    num_rows: int
    checked: tuple[int, ...]
    choice: Choice | None
    encoder: str
    model: lm.Identity
    file_options: Mapping[str, str | bool]
    origin: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Content(_Kept):
    """The parts of a classifier, apart from states.

    Attributes:
        options: the options of the fit.
        rows: the examples. `Example.row` is the number of a row.
    """

    options: AnyOptions
    rows: tuple[Example, ...]

    @property
    def labels_C(self) -> np.ndarray:
        """The labels as in y, in class order."""
        return np.array(self.labels)

    def demonstrations_of(self, view: ViewDemonstrations) -> tuple[Example, ...]:
        """Return the examples that begin the prompts of a view."""
        by_number = {example.row: example for example in self.rows}
        return tuple(by_number[number] for number in view.rows)

    @property
    def demonstrations(self) -> tuple[Example, ...]:
        """The examples that begin the prompts of the first view."""
        return self.demonstrations_of(self.views[0])

    @property
    def anchors(self) -> tuple[Example, ...]:
        """The examples that classify; those of `KNNPrompting` are not its demonstrations."""
        excluded = set(self.views[0].rows) if self.is_published else set()
        return tuple(example for example in self.rows if example.row not in excluded)

    @property
    def y_N(self) -> np.ndarray:
        """The class index of each anchor."""
        return np.array([self.task.class_index(example.label) for example in self.anchors], int)

    @property
    def ids_N(self) -> np.ndarray:
        """The row number of each anchor."""
        return np.array([example.row for example in self.anchors], int)

    @property
    def blocks(self) -> tuple[int, ...]:
        """The blocks whose outputs are read."""
        return (self.layer,) if self.layer else ()

    @property
    def k(self) -> int:
        """The number of neighbours of a text."""
        return min(self.options.k, len(self.anchors))

    def held_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability [N] of each held-out row's prediction, and whether it is right [N].

        Raises:
            UserError: there are too few rows, or their shares of classes or their anchors have changed.
        """
        assert self.choice
        reason = ""
        if self.options.class_prior is not None:
            reason = "class_prior is given, but a promise assumes that classes are as common as among the rows"
        elif self.choice.is_earlier:
            reason = "rows were added by partial_fit: fit again"
        elif not self.choice.outcomes:
            least = f"{pool.MIN_ROWS} rows of two classes, and {pool.MIN_ROWS_PER_CLASS} per class on average"
            among = f" among the {folds.LIMIT:,} rows that are held out" if len(self.rows) > folds.LIMIT else ""
            reason = f"the classifier has {len(self.rows):,} rows: fit at least {least}{among}"
        if reason:
            raise errors.UserError(f"no error rate can be promised: {reason}")
        pairs = [(outcome.probability, outcome.is_right) for outcome in self.choice.outcomes]
        p_N, right_N = np.array(pairs).T
        return p_N, right_N.astype(bool)

    @property
    def predicted(self) -> novelty.HeldOut | None:
        """The held-out predictions that novelty counts; None with few classes, or without predictions of these rows."""
        choice = self.choice
        if not choice or choice.is_earlier or len(np.unique(self.y_N)) < folds.MANY_CLASSES or not choice.outcomes:
            return None
        p_n = np.array([outcome.probability for outcome in choice.outcomes])
        return novelty.HeldOut(np.array(folds.sample(self.rows, self.options.random_state)), p_n)

    @property
    def num_novelty_rows(self) -> int:
        """The number of rows that p-values of novelty count."""
        return len(self.predicted.p_n) if self.predicted else len(self.anchors)

    @property
    def is_published(self) -> bool:
        """Whether the classifier is `KNNPrompting`."""
        return isinstance(self.options, PublishedOptions)


def origin_of(
    options: AnyOptions,
    task: Task,
    rows: Sequence[Example],
    file_options: Mapping[str, str | bool],
    model: lm.Identity,
    encoder: str,
    checked: Collection[int] = (),
) -> str:
    """Return a digest of all that determines the result of a fit, of its rows' numbers and of their file's options.

    `encoder` is the fingerprint of the sentence encoder: its name in the options does not change with its files.
    """
    described = json.dumps(
        [_options_dict(options), dict(file_options), [row.row for row in rows], sorted(checked)],
        sort_keys=True,
        default=str,
    )
    parts = [described, task.digest, splits.rows_digest(rows), *map(str, model.content), encoder]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class _Row:
    id: int
    label: str
    fields: Mapping[str, str]
    ids: Mapping[str, str | int | float | bool | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Document(_Kept):
    """The schema of the JSON. One of the two kinds of options is None."""

    format: int
    published: PublishedOptions | None
    automatic: AutoOptions | None
    rows: tuple[_Row, ...]


def to_json(content: Content) -> str:
    """Return the JSON of a classifier."""
    options = content.options
    document = _Document(
        format=FORMAT,
        published=_writable(options) if isinstance(options, PublishedOptions) else None,
        automatic=_writable(options) if isinstance(options, AutoOptions) else None,
        rows=tuple(map(_to_row, content.rows)),
        **_kept(content),
    )
    return schema.dumps(document)


def _kept(source: _Kept) -> dict[str, Any]:
    return {field.name: getattr(source, field.name) for field in dataclasses.fields(_Kept)}


def from_json(text: bytes) -> Content:
    """Return the classifier that this JSON describes.

    Raises:
        ValueError, RecursionError: not the JSON of a classifier.
        UserError: a value that a task, a rule or the options refuse.
    """
    value = schema.parse(text)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ValueError(f"this version reads format {FORMAT} only: fit again, or use the version that wrote it")
    document = schema.decode(_Document, value)
    options = document.published or document.automatic
    if options is None or (document.published and document.automatic):
        raise ValueError("one kind of options expected")
    content = Content(options=options, rows=tuple(map(_to_example, document.rows)), **_kept(document))
    _check(content)
    return content


def _check(content: Content) -> None:
    """Raise ValueError or UserError if parts of a classifier contradict each other."""
    task = content.task
    if tuple(map(str, content.labels)) != task.labels:
        raise ValueError("the labels are not the task's")
    numbers = [example.row for example in content.rows]
    if not 0 < len(numbers) == len(set(numbers)) or not all(0 <= number < content.num_rows for number in numbers):
        raise ValueError("duplicate row numbers, or some out of range")
    if not set(content.checked) <= set(numbers):
        raise ValueError("a checked row that does not exist")
    for example in content.rows:
        task.label_of(example.place, example.label)
        task.fields_of(example.place, example.fields)
    shots = [view.demo_shots for view in content.views]
    if not 0 < len(shots) == len(set(shots)) or content.layer < 0:
        raise ValueError("duplicate views, or none")
    for view in content.views:
        if len(set(view.rows)) != len(view.rows) or not set(view.rows) <= set(numbers):
            raise ValueError("a view has no such rows")
    if not content.anchors or content.is_published == (content.choice is not None):
        raise ValueError("no anchors, or the choice of another kind of classifier")
    if content.choice:
        _check_choice(content.choice, content.options.names, set(shots), content.layer)
    inputs.prior(content.options.class_prior, content.labels_C)
    _check_demo_shots(content.options.demo_shots)
    _check_model(content.model)
    _check_file_options(content.file_options)


def _check_demo_shots(given: Any) -> None:
    """Raise ValueError unless these are numbers of demonstrations, as the next fit takes them."""
    numbers_given = given if isinstance(given, list | tuple) else [given]
    if not all(number is None or number == AUTO or (type(number) is int and number >= 0) for number in numbers_given):
        raise ValueError("demo_shots: whole numbers expected")


def _check_model(identity: lm.Identity) -> None:
    """Raise ValueError if these values describe no model."""
    if not re.fullmatch("[0-9a-f]{64}|", identity.fingerprint) or identity.dtype not in DTYPES:
        raise ValueError("the model has no valid fingerprint or dtype")
    if identity.context < 1 or not identity.name.isprintable():
        raise ValueError("the model has no valid context or name")


def _check_file_options(file_options: Mapping[str, str | bool]) -> None:
    """Raise ValueError on an unknown encoding, an empty label column, another member, or a value of another type."""
    if any(type(value) is not _FILE_OPTIONS.get(name) or value == "" for name, value in file_options.items()):
        raise ValueError(f"the file options have other members than {', '.join(_FILE_OPTIONS)}, or wrong values")
    try:
        codecs.lookup(str(file_options.get("encoding", "utf-8")))
    except (LookupError, ValueError):
        raise ValueError("the file options have an unknown encoding") from None


def _check_choice(choice: Choice, names: Sequence[str], shots: Set[int], block: int) -> None:
    """Raise ValueError unless every expert exists and reads what the classifier has."""
    if not choice.members or choice.num_rows < 0:
        raise ValueError("a pool without experts")
    for member in choice.members:
        if member.expert not in names:
            raise ValueError(f"the expert {member.expert}, which the options do not have")
        kind = expert.KINDS[member.expert]
        if (member.demo_shots in shots) != kind.reads_prompts or (kind.reads_block and not block):
            raise ValueError(f"the expert {member.expert} on prompts that it does not read")
        shares = (member.share, member.accuracy or 0.0)
        settings = (member.setting, member.factor, member.weight)
        if min(*shares, *settings) < 0 or max(shares) > 1 or max(settings) > _LARGEST:
            raise ValueError(f"the expert {member.expert} with a number out of range")
    if len(choice.outcomes) not in (0, choice.num_rows):
        raise ValueError("another number of held-out rows")
    if not all(0 <= outcome.probability <= 1 for outcome in choice.outcomes):
        raise ValueError("a held-out row with a probability out of range")


def _writable(options: Any) -> Any:
    """Return options whose `class_prior` has Python's numbers and, if it is given by label, texts as keys, for JSON."""
    prior: Any = options.class_prior
    if prior is None:
        return options
    if hasattr(prior, "to_dict"):  # A pandas Series.
        prior = prior.to_dict()
    if isinstance(prior, Mapping):
        prior = {str(label): float(share) for label, share in prior.items()}
    elif not isinstance(prior, str):
        prior = [float(share) for share in prior]
    return dataclasses.replace(options, class_prior=prior)


def _options_dict(options: AnyOptions) -> dict[str, Any]:
    return {"class": type(options).__name__, **dataclasses.asdict(_writable(options))}


def _to_row(example: Example) -> _Row:
    ids = {name: _plain(value) for name, value in example.ids.items()}
    return _Row(example.row, example.label, dict(example.fields), ids)


def _to_example(row: _Row) -> Example:
    return Example(row.fields, row.label, row.id, f"row {row.id}", row.ids)


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return float(value)
    return str(value)
