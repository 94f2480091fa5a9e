"""The table that goes round: `look` writes the train rows and rows to label, a person edits it, and `fit` reads it.

Each anchor is classified by the others: the least probable labels may be wrong.
"""

import collections
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from knnprompt_jax.classifier.confidence import acquisition
from knnprompt_jax.classifier.experts import expert, linear
from knnprompt_jax.classifier.fitted import Content, Fitted
from knnprompt_jax.cli import command_settings as commands
from knnprompt_jax.commands import predictions_file
from knnprompt_jax.common import errors, progress, text_tables
from knnprompt_jax.inference import states
from knnprompt_jax.tasks import columns
from knnprompt_jax.tasks.table_file import Table
from knnprompt_jax.tasks.task import Example

_CHECK = "check: "
_CHOSEN = "chosen: "  # How the reason of a row that `look` chose to label begins; it stays in later tables.
_MIN_CHECKS = 10  # Labels to check: a tenth of the rows within these limits.
_MAX_CHECKS = 50
_NEIGHBOURHOOD = 10  # Nearest anchors that cast doubt on a label; the vote has its own k.
_MIN_LEAD = 0.5  # The lead of another class from which on it is suggested.
_MIN_SUM = 1e-300
_NOVEL = 0.05  # The p-value below which a row is unlike the train rows.
_UNDECIDED = 0.5  # The margin below which a row is undecided between two classes.

Row = dict[str, str]
"""The cells of a row by column."""


def read(table: Table) -> tuple[tuple[str, ...], ...]:
    """Return a table as texts, its header first; raise UserError as `Table.rows`."""
    rows = [row for _, row in table.rows()]
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    return (names, *(tuple(predictions_file.to_text(row.get(name)) for name in names) for row in rows))


def write(rows: Sequence[Row]) -> bytes:
    """Return rows as CSV in UTF-8 with a byte order mark; the columns that `look` adds are the last."""
    names = [*dict.fromkeys(name for row in rows for name in row if name not in columns.ADDED), *columns.ADDED]
    return text_tables.to_csv([names, *([row.get(name, "") for name in names] for row in rows)])


def train_rows(content: Content) -> dict[int, Row]:
    """Return the rows of the train table, by number, with their labels as they stand.

    Rows of a classifier that was fitted to no file are made from its examples, but not from descriptions of classes.

    Raises:
        UserError: the table has a column of its own that `look` adds.
    """
    label = content.label_column
    table = _given_rows(content)
    for row in table:
        if correction := row.get(columns.SUGGESTED, "").strip():
            row |= {label: correction, columns.SUGGESTED: "", columns.CHECKED: "x"}
    rows = dict(enumerate(table))
    for example in () if content.is_described else content.rows:
        ids = {name: predictions_file.to_text(value) for name, value in example.ids.items()}
        rows.setdefault(example.row, {**ids, **example.fields})[label] = example.label
    given = {name for row in rows.values() if columns.SUGGESTED not in row for name in row}
    if taken := {label, *content.task.fields, *given}.intersection(columns.ADDED):
        raise errors.UserError(f"column {min(taken)!r} of the train table: look adds a column of this name; rename it")
    return rows


def _given_rows(content: Content) -> list[Row]:
    """Return the rows of the train file."""
    header, *lines = content.table or ((),)
    return [dict(zip(header, line, strict=True)) for line in lines]


def _is_chosen(row: Mapping[str, str]) -> bool:
    return columns.SUGGESTED in row and row.get(columns.REASON, "").startswith(_CHOSEN)


def count_chosen(content: Content) -> int:
    """Return how many rows of a classifier were chosen by `look`."""
    chosen = {number for number, row in enumerate(_given_rows(content)) if _is_chosen(row)}
    return sum(row.row in chosen for row in content.rows)


def labels_by_probability(y_N: np.ndarray, shares_NC: np.ndarray, near_Nk: np.ndarray) -> pd.DataFrame:
    """Return N anchors, the least probable label first; the index is the anchor's.

    The columns are the class `suggested`, or -1, the label's `probability`, and how many of the nearest anchors have
    another label, `differing`. A class is suggested if its probability leads the label's by more than half.

    Probabilities are p / √share, scaled to a sum of 1: halfway between the classes' shares of the anchors and equal
    shares. With the anchors' shares, right labels of a rare class would come before wrong labels of a common one;
    confident learning avoids this by a threshold for each class (Northcutt et al., 2021). With equal shares, a class of
    few anchors, whose probabilities are the least reliable, would hide its wrong labels.

    Args:
        y_N: the classes.
        shares_NC: each class's leave-one-out probability, or its share of the votes of the nearest anchors.
        near_Nk: the nearest other anchors of each anchor, as indices 0 … N − 1.
    """
    rows_N = np.arange(len(y_N))
    shares_C = np.bincount(y_N, minlength=shares_NC.shape[1]) / len(y_N)
    balanced_NC = np.divide(shares_NC, np.sqrt(shares_C), out=np.zeros(shares_NC.shape), where=shares_C > 0)
    balanced_NC /= np.maximum(balanced_NC.sum(-1, keepdims=True), _MIN_SUM)
    own_N = balanced_NC[rows_N, y_N]
    best_N = balanced_NC.argmax(-1)
    leads_N = balanced_NC[rows_N, best_N] - own_N > _MIN_LEAD
    differing_N = np.sum(y_N[near_Nk] != y_N[:, None], -1)
    content = {"suggested": np.where(leads_N, best_N, -1), "probability": own_N, "differing": differing_N}
    return pd.DataFrame(content, rows_N).sort_values("probability", kind="stable")


def mark_doubts(fitted: Fitted, shares_NC: np.ndarray, rows: Mapping[int, Row]) -> list[int]:
    """Write the probabilities of labels, and the reasons to check some of them, into the train rows.

    A tenth of the labels is to be checked, then those of anchors whose text also occurs with another label. Labels that
    a person checked or gave on request are left out.

    Args:
        shares_NC: the shares of `Fitted.left_out`.
        rows: the rows of `train_rows`.

    Returns:
        The indices of the anchors to check, the least probable label first.
    """
    content = fitted.content
    names = content.task.labels
    k = min(max(content.k, _NEIGHBOURHOOD), len(content.anchors) - 1)
    near_Nk = np.asarray(fitted.search_among_anchors(k).indices_Qk)
    for row in rows.values():
        if not _is_chosen(row):
            row |= dict.fromkeys(columns.COMPUTED, "")
    labels_of = collections.defaultdict(set)
    for example in content.rows:
        labels_of[example.text_key].add(example.label)
    count = min(_MAX_CHECKS, max(_MIN_CHECKS, len(content.anchors) // 10))
    doubts: list[int] = []
    for index, found in labels_by_probability(content.y_N, shares_NC, near_Nk).iterrows():
        anchor = content.anchors[index]
        row = rows[anchor.row]
        row[columns.PROBABILITY] = f"{found.probability:.3f}"
        others = labels_of[anchor.text_key] - {anchor.label}
        if row.get(columns.CHECKED) or _is_chosen(row) or (len(doubts) >= count and not others):
            continue
        doubts.append(index)
        parts = [f"perhaps {names[int(found.suggested)]}"] if found.suggested >= 0 else []
        parts.append(f"{found.differing:.0f} of {k} nearest rows have another label")
        parts += [f"this text has the label {other}, too" for other in sorted(others)]
        row[columns.REASON] = _CHECK + "; ".join(parts)
    return doubts


def rows_to_label(fitted: Fitted, known: Sequence[Row], settings: commands.LookSettings) -> list[Row]:
    """Return at most `budget` rows of the input to label, the most valuable first.

    Rows with a label, and texts that occurred before, are left out.

    Args:
        known: the rows of the train table, whose texts are left out.

    Raises:
        UserError: the file cannot be read, or every row is labelled or repeats another.
    """
    seen = {Example({field: row.get(field, "") for field in fitted.task.fields}, "").text_key for row in known}
    table = settings.table(settings.input, fitted.content.label_column)
    examples = []
    left_out = 0
    for example in table.unlabelled(fitted.task):
        if example.text_key in seen or not columns.is_empty(example.extra.get(table.label_column)):
            left_out += 1
        else:
            examples.append(example)
        seen.add(example.text_key)
    note = f"{left_out:,} rows have a label, or the text of a train row or an earlier row"
    if not examples:
        raise errors.UserError(f"{settings.input}: no row to label: {note}")
    progress.note(f"{settings.input}: {len(examples):,} rows can be labelled; {note}")
    readings = fitted.read(examples, states.open_disk_cache(settings.cache_gb))
    p_NC = np.asarray(fitted.answer(readings).probabilities, np.float64)
    chosen_Q = order_by_value(fitted, readings, p_NC, settings.budget)
    novelty_Q = fitted.novelty(readings.take(chosen_Q))
    names = {name for row in known for name in row}
    rows = []
    for index, p_value, reason in zip(chosen_Q, novelty_Q, _reasons(fitted, p_NC[chosen_Q], novelty_Q), strict=True):
        example = examples[index]
        copied = {name: predictions_file.to_text(cell) for name, cell in example.extra.items() if name in names}
        emptied = dict.fromkeys((fitted.content.label_column, *columns.ADDED), "")
        computed = (f"{p_NC[index].max():.3f}", f"{p_value:.3f}", reason)
        rows.append({**copied, **example.fields, **emptied, **dict(zip(columns.COMPUTED, computed, strict=True))})
    return rows


def order_by_value(fitted: Fitted, readings: expert.Readings, p_NC: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of at most `count` rows whose labels are worth most, the most valuable first.

    Args:
        p_NC: the probabilities of the classes of each row.
    """
    x_NF = np.concatenate(expert.last_token_arrays(fitted.first_view(readings)), -1)
    mean_F, scale_F = linear.standardise(x_NF)
    return acquisition.select_batch(p_NC, (x_NF - mean_F) / scale_F, count)


def _reasons(fitted: Fitted, p_QC: np.ndarray, novelty_Q: np.ndarray) -> Iterator[str]:
    """Yield why each row was chosen."""
    for p_C, margin, p_value in zip(p_QC, acquisition.margins(p_QC), novelty_Q, strict=True):
        order = p_C.argsort()[::-1][:2]
        likely = [f"{fitted.classes[index]} ({100 * p_C[index]:.0f} %)" for index in order]
        reason = f"undecided between {' and '.join(likely)}"
        if margin >= _UNDECIDED:
            reason = f"probably {likely[0]}, but unlike the other chosen rows"
        yield f"{_CHOSEN}{reason}{'; unlike the train rows' if p_value < _NOVEL else ''}"
