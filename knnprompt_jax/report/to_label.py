"""Unlabelled rows whose labels are worth most: the table for a person to fill in, and the rows on the page."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from knnprompt_jax import characters, errors, states, tables
from knnprompt_jax.classifier.fitted import Fitted
from knnprompt_jax.commands import predictions_file
from knnprompt_jax.confidence import acquisition
from knnprompt_jax.experts import expert, linear
from knnprompt_jax.experts.expert import Readings
from knnprompt_jax.settings import commands
from knnprompt_jax.store import search as search_lib
from knnprompt_jax.tasks import columns
from knnprompt_jax.tasks.task import Example, Task

HEADERS = ("text", "predicted", "probability", "novelty", "why")
_NOVEL = 0.05  # The p-value below which a row is unlike the train rows.
_UNDECIDED = 0.5  # The margin below which a row is undecided between two classes.


@dataclasses.dataclass(frozen=True, eq=False)
class ToLabel:
    """Q chosen rows, the most valuable first.

    Attributes:
        label_column: the column that a person fills in.
        others: the columns of the input that are copied.
        texts: the texts as pages show them.
        predicted: the labels in the task.
        novelty_Q: the p-values of `Fitted.novelty`.
        whys: the reasons in words.
        near: the nearest anchors of each row.
        hidden_QE: the states in the first view.
        notes: remarks about the rows of the file, a line each.
    """

    label_column: str
    others: tuple[str, ...]
    examples: tuple[Example, ...]
    texts: tuple[str, ...]
    predicted: tuple[str, ...]
    probabilities_Q: np.ndarray
    novelty_Q: np.ndarray
    whys: tuple[str, ...]
    near: search_lib.Neighbours
    hidden_QE: np.ndarray
    notes: tuple[str, ...]


def choose(fitted: Fitted, settings: commands.LookSettings, k: int) -> ToLabel:
    """Choose at most `budget` rows of the input and find their k nearest anchors.

    Raises:
        UserError: the file cannot be read, or every row is labelled or repeats another.
    """
    table = settings.table(settings.input, fitted.content.file_options)
    label_column = table.label_column
    examples = list(table.unlabelled(fitted.task))
    new, notes = _new(fitted, examples, label_column)
    if not new:
        raise errors.UserError(f"{settings.input}: no row to label: {'; '.join(notes) or 'the file has none'}")
    if len(new) < settings.budget:
        notes.append(f"--budget={settings.budget}: only {len(new):,} rows are left, so all of them are listed")
    readings = fitted.read(new, states.open_disk_cache(settings.cache_gb))
    first = fitted.first_view(readings)
    answer = fitted.answer(readings)
    p_NC = np.asarray(answer.probabilities, np.float64)
    chosen_Q = rank(fitted, readings, p_NC, settings.budget)
    chosen_readings = readings.take(chosen_Q)
    novelty_Q = fitted.novelty(chosen_readings)
    not_copied = {*fitted.task.fields, *settings.text_columns, label_column, *columns.ADDED}
    names = dict.fromkeys(name for index in chosen_Q for name in new[index].extra)
    return ToLabel(
        label_column=label_column,
        others=tuple(name for name in names if name not in not_copied),
        examples=tuple(new[index] for index in chosen_Q),
        texts=tuple(fitted.task.retrieval_text(new[index]) for index in chosen_Q),
        predicted=tuple(str(answer.labels[index]) for index in chosen_Q),
        probabilities_Q=p_NC[chosen_Q].max(-1),
        novelty_Q=novelty_Q,
        whys=tuple(_whys(p_NC[chosen_Q], novelty_Q, list(map(str, fitted.classes.tolist())))),
        near=fitted.search(chosen_readings, k),
        hidden_QE=np.asarray(first.hidden_NE, np.float32)[chosen_Q],
        notes=tuple(notes),
    )


def rank(fitted: Fitted, readings: Readings, p_NC: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of at most `count` rows whose labels are worth most, the most valuable first.

    Args:
        p_NC: the probabilities of the classes of each row.
    """
    first = fitted.first_view(readings)
    x_NF = expert.state_inputs(first, fitted.content.layer) if fitted.content.layer else np.asarray(first.hidden_NE)
    mean_F, scale_F = linear.standardise(x_NF)
    return acquisition.choose(p_NC, (x_NF - mean_F) / scale_F, count)


def _new(fitted: Fitted, examples: Sequence[Example], label_column: str) -> tuple[list[Example], list[str]]:
    """Return the rows without a label whose text is new, and how many others there are."""
    seen = {_key(fitted.task, row) for row in fitted.content.rows}
    unlabelled = [example for example in examples if columns.is_empty(example.extra.get(label_column))]
    first: dict[str, Example] = {}
    for example in unlabelled:
        first.setdefault(_key(fitted.task, example), example)
    new = [example for key, example in first.items() if key not in seen]
    notes = []
    if count := len(examples) - len(unlabelled):
        notes.append(f"rows with a label, left out: {count:,}")
    if count := len(unlabelled) - len(new):
        notes.append(f"rows that repeat a train row or an earlier row, left out: {count:,}")
    return new, notes


def _key(task: Task, example: Example) -> str:
    return characters.plain(task.retrieval_text(example))


def _whys(p_QC: np.ndarray, novelty_Q: np.ndarray, labels: Sequence[str]) -> Iterator[str]:
    """Yield why each row was chosen."""
    margins_Q = acquisition.margins(p_QC)
    for index, (p_C, margin, p_value) in enumerate(zip(p_QC, margins_Q, novelty_Q, strict=True)):
        order = p_C.argsort()[::-1]
        first = f"{labels[order[0]]} ({100 * p_C[order[0]]:.0f} %)"
        why = f"probably {first}, but unlike the rows above" if index else f"probably {first}"
        if margin < _UNDECIDED:
            why = f"undecided between {first} and {labels[order[1]]} ({100 * p_C[order[1]]:.0f} %)"
        yield f"{why}; unlike the train rows" if p_value < _NOVEL else why


def to_csv(chosen: ToLabel, task: Task) -> bytes:
    """Return the table: the texts, an empty column of labels, what `look` adds, and the input's other columns.

    It begins with a byte order mark, so that spreadsheets and `fit --encoding` read it as UTF-8.
    """
    rows = [(*task.fields, chosen.label_column, *columns.ADDED, *chosen.others)]
    for example, added in zip(chosen.examples, _added(chosen), strict=True):
        others = [predictions_file.to_text(example.extra.get(name)) for name in chosen.others]
        rows.append((*(example.fields[field] for field in task.fields), "", "", *added[1:], "", *others))
    content = tables.to_csv([[*map(tables.to_cell, row)] for row in rows])
    return content.encode("utf-8-sig", "backslashreplace")


def _added(chosen: ToLabel) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the columns `columns.ADDED`."""
    numbers = zip(chosen.probabilities_Q, chosen.novelty_Q, strict=True)
    for predicted, (probability, p_value), why in zip(chosen.predicted, numbers, chosen.whys, strict=True):
        yield predicted, f"{probability:.3f}", f"{p_value:.3f}", why


def listed(chosen: ToLabel, titles: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row under `HEADERS`; `titles` has the names of labels on pages."""
    for text, (predicted, *others) in zip(chosen.texts, _added(chosen), strict=True):
        yield text, titles[predicted], *others
