"""Change a saved classifier. A change can be repeated after it died: what is done already is not done again.

Corrected labels come from a file: the suggestions of `look` after a person reviewed them, or a table of id and label.
"""

import collections
import dataclasses
import functools
import hashlib
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from knnprompt_jax import errors, files, lm, parallel, states, tables
from knnprompt_jax.classifier import estimator, saving
from knnprompt_jax.classifier.content import Content
from knnprompt_jax.runs import inputs
from knnprompt_jax.settings import commands
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks import defects, formats
from knnprompt_jax.tasks.cells import is_empty, label_string
from knnprompt_jax.tasks.task import Example

_READ = ID, LABEL, SUGGESTED = ("id", "label", "suggested")
TEXT = "text"  # Beside `suggested`: the anchor's text, by which a table of another classifier is recognised.


@dataclasses.dataclass(frozen=True)
class Result:
    """The saved classifier, what the model read for it, and remarks for the user."""

    classifier: estimator.KNNPrompting | estimator.AutoClassifier
    statistics: lm.PassStatistics
    notes: tuple[str, ...] = ()


def change(settings: commands.FitSettings, folder: pathlib.Path) -> Result:
    """Remove, relabel and append anchors of a saved classifier.

    Raises:
      UserError: no saved classifier, another model or dtype than its own, an invalid id or row.
    """
    if not folder.parent.is_dir():
        raise errors.UserError(f"{folder}: not a saved classifier: the folder {folder.parent} does not exist")
    with saving.lock(folder):
        saving.recover(folder)
        saved = saving.read(folder)
        store_lib.check_processes(saved.store_options)
        model = inputs.read_model(settings.model, settings, saved)
        saved.check(model.identity)
        rows = inputs.load_appended_rows(settings, saved) if settings.append else []
        _warn(rows, saved.content)
        encoding = settings.encoding or "utf-8"  # Suggestions are UTF-8, whatever the train file was.
        labels, missing = read_corrections(settings.relabel, encoding, saved.content) if settings.relabel else ({}, [])
        num_bytes = sum(size for size, _ in saved.manifest.files.values())
        check = functools.partial(files.check_writable, folder, folder=True, num_bytes=num_bytes, replaces=True)
        parallel.call_in_main(check)
        classifier = estimator.restore(saved, model)
        classifier.states_cache = states.user_cache(settings.cache_gb)
        before, notes = classifier.store_, remove(classifier, settings.remove_ids)
        notes += _relabel(classifier, labels, missing) if settings.relabel else []
        notes += append(classifier, rows)
        if classifier.store_ is not before:
            saving.save(classifier, folder, overwrite=True)
    return Result(classifier, classifier.model.statistics, tuple(notes))


def append(classifier: Any, rows: Sequence[Example]) -> list[str]:
    """Add the rows of a file as anchors, except those that an earlier command has added; report how many these are.

    A row that the file has twice is added twice. Rows that the classifier was fitted to do not count as added.
    """
    known = {example.content for example in classifier.anchors_.values()}
    earlier: collections.Counter[str] = collections.Counter()
    new: list[Example] = []
    for row in rows:
        digest = hashlib.sha256(json.dumps([row.label, dict(row.fields)], sort_keys=True).encode()).hexdigest()
        content = f"{digest}-{earlier[digest]}"  # The number of equal rows before this one.
        earlier[digest] += 1
        if content not in known:
            new.append(dataclasses.replace(row, row=classifier.num_rows_ + len(new), content=content))
    classifier.append(new)
    count = len(rows) - len(new)
    notes = [f"rows added: {len(new)}, ids {new[0].row} to {new[-1].row}"] if new else []
    return notes + ([f"{count} of the {len(rows)} rows to append were added already"] if count else [])


def remove(classifier: Any, ids: Sequence[int]) -> list[str]:
    """Remove anchors by their ids; report which were removed, and which already had been.

    Raises:
      UserError: an id that no anchor can have had, a demonstration's id, or no anchor would be left.
    """
    demonstrations = {example.row for example in classifier.demonstrations_}
    for number in ids:
        if number in demonstrations:
            raise errors.UserError(f"--remove_ids: id {number} is a demonstration: fit without its row")
        if not 0 <= number < classifier.num_rows_:
            raise errors.UserError(
                f"--remove_ids: id {number} is not an anchor: choose from 0 to {classifier.num_rows_ - 1}"
            )
    missing = [number for number in dict.fromkeys(ids) if number not in classifier.anchors_]
    if left := [number for number in dict.fromkeys(ids) if number in classifier.anchors_]:
        classifier.remove(left)
    notes = [f"anchors removed: {len(left)}, ids {errors.join_names(left)}"] if left else []
    return notes + _report_missing(missing)


def _relabel(classifier: Any, labels: Mapping[int, str], missing: Sequence[int]) -> list[str]:
    """Give anchors other labels; report how many changed, and which anchors were removed already."""
    labels = {number: label for number, label in labels.items() if number in classifier.anchors_}
    if labels:
        classifier.relabel(list(labels), list(labels.values()))
    caution = (
        ". If you did not check the new labels, estimates of accuracy, also those of tune, are now too high"
        if labels
        else ""
    )
    return [f"anchors relabelled: {len(labels)}{caution}", *_report_missing(missing)]


def _warn(rows: Sequence[Example], content: Content) -> None:
    """Log rows to append that repeat or contradict a row of the classifier, and new labels that resemble others."""
    if not content.task.classes.keys() >= {row.label for row in rows}:
        inputs.log_warnings(defects.alike(row.label for row in (*content.anchors, *rows)))
    matches = defects.matches(rows, (*content.demonstrations, *content.anchors))
    fitted = [row.source for row, known in matches if row.label == known.label and not known.content]
    if fitted:
        message = "%d of %d rows to append repeat rows of the classifier, which now count twice; first: %s"
        logging.warning(message, len(fitted), len(rows), fitted[0])
    if found := [(row.source, row.label, known.row, known.label) for row, known in matches if row.label != known.label]:
        message = (
            "%d of %d rows to append have another label than an earlier row with the same text: %s is %r, id %d is %r"
        )
        logging.warning(message, len(found), len(rows), *found[0])


def _report_missing(ids: Sequence[int]) -> list[str]:
    return [f"ids without an anchor (removed earlier, or not drawn): {errors.join_names(ids)}"] if ids else []


def read_corrections(path: str, encoding: str, content: Content) -> tuple[dict[int, str], list[int]]:
    """Return the new label of each anchor id, without unchanged labels, and the ids that were removed earlier.

    In a file with the column `suggested`, that is the right label and `label` is the current one. An empty `suggested` keeps the
    label. In other files `label` is the right one.

    Raises:
      UserError: with file and line: a missing column, an id that no anchor can have had, or two labels for one id. Also a `text` or
        `label` beside `suggested` that is not the anchor's: the table of another classifier, or the right label in the wrong column.
    """
    task, current = content.task, {row.row: row.label for row in content.anchors}
    texts = {row.row: task.retrieval_text(row) for row in content.anchors}
    demonstrations = {row.row for row in content.demonstrations}
    wanted: dict[int, str] = {}
    for place, row in formats.read(pathlib.Path(path), encoding):
        for column in (ID, SUGGESTED if SUGGESTED in row else LABEL):
            if column not in row:
                raise errors.UserError(f"{place}: lacks the column {column!r}; it has {errors.join_names(row)}")
        cells = {
            name: "" if is_empty(cell) else label_string(place, cell) for name, cell in row.items() if name in _READ
        }
        if not re.fullmatch(r"\d{1,18}", cells[ID].strip()):
            raise errors.UserError(
                f"{place}: id {cells[ID].strip()!r}: an integer is required, as in the listings of `look`"
            )
        number = int(cells[ID])
        if number in demonstrations:
            raise errors.UserError(
                f"{place}: id {number} is a demonstration, whose label is part of every prompt: correct its row and fit again"
            )
        if number >= content.num_rows:
            raise errors.UserError(f"{place}: id {number} is not an anchor: choose from 0 to {content.num_rows - 1}")
        if SUGGESTED in row and isinstance(row.get(TEXT), str) and number in texts:
            known = texts[number].encode("utf-8", "backslashreplace").decode()
            if defects.plain(tables.from_cell(row[TEXT])) != defects.plain(known):
                raise errors.UserError(
                    f"{place}: the text is not that of anchor {number}: the file belongs to another classifier; if only the text was "
                    f"changed, remove the column {TEXT!r}"
                )
        # A spreadsheet's guard against formulas is no part of a label.
        labels = {
            name: text if text in task.classes else tables.from_cell(text.strip()) for name, text in cells.items()
        }
        old, suggested = current.get(number, ""), labels.get(SUGGESTED)
        label = labels.get(LABEL, old)
        if suggested is None and not label:
            raise errors.UserError(f"{place}: the label is empty")
        if suggested is not None and old not in ("", label, suggested):
            raise errors.UserError(
                f"{place}: label {label!r} is not that of anchor {number}, {old!r}: write the right label into the column "
                f"{SUGGESTED!r}"
            )
        new = label if suggested is None else suggested
        if new and wanted.setdefault(number, new) != new:
            raise errors.UserError(f"{place}: id {number} has two labels in this file, {wanted[number]!r} and {new!r}")
    changed = {number: label for number, label in wanted.items() if current.get(number, label) != label}
    return changed, [number for number in wanted if number not in current]
