"""Examples from local files, from the Hugging Face Hub, or from the embedded demo; every row is validated."""

import collections
import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources.abc import Traversable
from typing import Any

from absl import logging

from knnprompt_jax import characters, errors
from knnprompt_jax.tasks import catalogue, defects, formats, hub
from knnprompt_jax.tasks.cells import is_empty, label_string
from knnprompt_jax.tasks.hub import HubSource
from knnprompt_jax.tasks.task import ALLOW, SKIP, Example, Task

STOP = "stop"
ON_BAD = (STOP, SKIP)
NAME_COLUMNS = "; name the columns of the texts with --text_columns="
_MAX_NAMED = 5  # Bad rows that a warning names.
_FILE_NAMES = {"train": ("train.jsonl", "train_subset.jsonl")}


def load_rows(
    task: Task,
    split: str,
    *,
    data_dir: str | None = None,
    path: str | None = None,
    further: Sequence[str] = (),
    encoding: str = "utf-8",
    hub_source: HubSource | None = None,
    restore_dropped: bool = False,
    label_column: str = "label",
    on_bad: str = STOP,
    merge_labels: bool = False,
    text_columns: Sequence[str] | None = None,
) -> list[Example]:
    """Load one split of a task from one place; without a place, the demo task comes from the package.

    Args:
        task: declares the fields and labels of the rows.
        split: "train", "dev_subsample", "test", …; the file is `<data_dir>/<task.name>/<split>.jsonl`.
        data_dir: the folder of task folders in the published layout.
        path: a CSV, TSV (both with a header), JSONL or Parquet file that holds only this split.
        further: more such files, whose rows are numbered on; those without a label are left out and counted.
        encoding: the encoding of a text file at `path`.
        hub_source: a dataset on the Hub, for example from `catalogue.hub_source`.
        restore_dropped: add the rows of `train_dropped.jsonl`, which completes the published train file.
        label_column: the name of the label column in files.
        on_bad: "stop" at a bad row, or "skip" it: a warning counts the rows that are left out.
        merge_labels: a label of the same `characters.identity` as one of the task's is that label.
        text_columns: the columns of the task's fields, in the order of the fields; empty: named like them. None: the
            same, and a message about a missing column does not offer --text_columns.

    Raises:
        UserError: a file is missing, empty or malformed; or a row has a missing, empty or non-string text, or a missing
            or unknown label. The message names the file and the line.
    """
    if sum(place is not None for place in (data_dir, path, hub_source)) > 1:
        raise errors.UserError("choose one place for the rows: --data_dir, --hub, or --train_file with its --eval_file")
    rows: Sequence[formats.Parsed]
    if path is not None:
        source = path
        rows = list(formats.parse(pathlib.Path(path), encoding))
    else:
        source, rows = _published_rows(task, split, data_dir, hub_source, restore_dropped)
    columns = columns_of(task, text_columns or (), label_column)
    merged: collections.Counter[tuple[str, str]] = collections.Counter()

    def label_of(place: str, label: Any) -> str:
        found = task.label_of(place, label, merge_labels)
        if merge_labels and (name := label_string(place, label)) != found:
            merged[name, found] += 1
        return found

    advice = "" if text_columns is None else NAME_COLUMNS
    reading = _Reading(task, columns, label_column, label_of, on_bad, advice)
    examples = reading.examples(source, enumerate(rows))
    examples += reading.labelled(further, encoding, len(rows))
    if merged:
        logging.warning("%s: %s", source, defects.renamed_labels(merged))
    return examples


def _published_rows(
    task: Task, split: str, data_dir: str | None, hub_source: HubSource | None, restore_dropped: bool
) -> tuple[str, Sequence[formats.Parsed]]:
    """Return the rows of a published split, and where they come from."""
    if hub_source is not None:
        return hub_source.dataset, hub.read(hub_source, split)
    folder = _task_folder(task, data_dir)
    return f"{folder / split}.jsonl", read_split(folder, split, restore_dropped)


def load_table(
    path: str,
    fields: Sequence[str] = (),
    empty: str = ALLOW,
    *,
    further: Sequence[str] = (),
    encoding: str = "utf-8",
    label_column: str = "label",
    on_bad: str = STOP,
    merge_labels: bool = False,
) -> tuple[Task, list[Example]]:
    """Return the task inferred from a table, as by `Task.infer`, and its rows; see `load_rows` for other arguments.

    The first file alone determines the columns of texts, and whether labels are named 1 or 1.0. With `merge_labels`,
    labels of one `characters.identity` become the most frequent of them; a warning names them.
    """
    _check_no_label(fields, label_column)
    rows = list(formats.parse(pathlib.Path(path), encoding))
    # The label of a row may still be bad, so the fields are inferred first, with the same label for every row.
    unlabelled = [{**row, label_column: 0} for _, row in rows if isinstance(row, dict)]
    if not unlabelled:
        bad = [row for _, row in rows if isinstance(row, errors.UserError)]
        raise bad[0] if bad else errors.UserError(f"{path}: no rows")
    with errors.prefixed(path):
        draft = Task.infer(unlabelled, label=label_column, fields=fields or None, empty=empty)
    reading = _Reading(draft, columns_of(draft, ()), label_column, label_string, on_bad)
    examples = reading.examples(path, enumerate(rows))
    examples += _renamed(reading.labelled(further, encoding, len(rows)), draft, examples)
    for doubt in defects.headers(examples, label_column):
        logging.warning("%s: %s", path, doubt)
    if merge_labels:
        examples, merged = defects.merge_labels(examples)
        if merged:
            logging.warning("%s: %s", path, defects.renamed_labels(merged))
    _warn_of_new_labels(examples)
    if not fields:
        for doubt in defects.doubtful_fields(examples):
            logging.warning("%s: %s", path, doubt)
    texts = [example.fields for example in examples]
    labels = [example.label for example in examples]
    with errors.prefixed(path):
        return Task.infer(texts, labels, label=label_column, fields=draft.fields, empty=empty), examples


def read_split(folder: Traversable, split: str, restore_dropped: bool) -> list[formats.Row]:
    """Return the rows of `<split>.jsonl`; the file of "train" may be `train_subset.jsonl`, as published for DBPedia.

    With `restore_dropped`, the rows of `<split>_dropped.jsonl`, if it exists, are put back. Their key `line` is their
    line number, from 0, in the file from which they were dropped.
    """
    names = _FILE_NAMES.get(split, (f"{split}.jsonl",))
    found = [folder / name for name in names if (folder / name).is_file()]
    if not found:
        entries = errors.join_names(sorted(entry.name for entry in folder.iterdir()))
        raise errors.UserError(f"{folder / names[0]}: no such file; the folder holds {entries}")
    rows = list(formats.read(found[0]))
    dropped = folder / f"{split}_dropped.jsonl"
    if not (restore_dropped and dropped.is_file()):
        return rows
    removed = [(row.pop("line", None), place, row) for place, row in formats.read(dropped)]
    count = len(rows) + len(removed)
    for line, place, _ in removed:
        if type(line) is not int or line not in range(count):
            raise errors.UserError(f"{place}: line={line!r}: the row's line number is needed, from 0 to {count - 1}")
    for line, place, row in sorted(removed, key=lambda each: each[0]):
        rows.insert(line, (place, row))
    return rows


def columns_of(task: Task, text_columns: Sequence[str], label_column: str = "") -> dict[str, str]:
    """Return the column of each field; raise UserError unless there is one for each, and none holds the labels."""
    _check_no_label(text_columns, label_column)
    if text_columns and len(text_columns) != len(task.fields):
        raise errors.UserError(
            f"--text_columns={','.join(text_columns)}: give a column for each of the classifier's texts, in the order "
            f"{errors.join_names(task.fields)}"
        )
    return dict(zip(task.fields, text_columns or task.fields, strict=True))


def is_skipped(error: errors.UserError, task: Task, on_bad: str) -> bool:
    """Whether a row with this error is skipped."""
    return on_bad == SKIP or (task.empty == SKIP and isinstance(error, errors.EmptyCell))


def with_advice(error: errors.UserError) -> errors.UserError:
    """Return the error of a row; the error of an empty cell also says how to skip such rows."""
    if isinstance(error, errors.EmptyCell):
        return errors.UserError(f"{error}; --on_bad=skip leaves such rows out")
    return error


def _task_folder(task: Task, data_dir: str | None) -> Traversable:
    if data_dir is None and task.name == catalogue.DEMO:
        return catalogue.demo_folder()
    folder = pathlib.Path(data_dir or "") / task.name
    if data_dir is not None and folder.is_dir():
        return folder
    missing = f"task {task.name!r}: its rows are not included" if data_dir is None else f"{folder}: no such folder"
    raise errors.UserError(
        f"{missing}; give --data_dir=DIR (rows in DIR/{task.name}/train.jsonl and dev_subsample.jsonl), --hub (the "
        "Hugging Face Hub), or --train_file (a table; not in `paper`; `compare` needs --eval_file too)"
    )


def _check_no_label(text_columns: Sequence[str], label_column: str) -> None:
    if label_column in text_columns:
        raise errors.UserError(f"--text_columns: {label_column!r} is the column of the labels; leave it out")


def _renamed(rows: Iterable[Example], draft: Task, first: Iterable[Example]) -> list[Example]:
    """Return rows of later files with the labels of the first file that they name (`Task.find_label`)."""
    names = tuple(dict.fromkeys(row.label for row in first))
    known = dataclasses.replace(draft, labels=names, label_words=names)
    return [dataclasses.replace(row, label=known.find_label(row.label) or row.label) for row in rows]


def _warn_of_new_labels(rows: Iterable[Example]) -> None:
    """Warn about labels that a later file has and no file before it."""
    by_file: dict[str, list[Example]] = collections.defaultdict(list)
    for row in rows:
        by_file[row.place.rpartition(":")[0]].append(row)
    (_, earlier), *later = by_file.items()
    for path, own in later:
        for message in defects.new_labels(earlier, own):
            logging.warning("%s: %s", path, message)
        earlier += own


@dataclasses.dataclass(frozen=True)
class _Reading:
    """The rules by which parsed rows become examples.

    Attributes:
        columns: the column of each of the task's fields.
        label_of: maps the place and the label of a row to its label string, or raises UserError.
        advice: the end of the message about a missing column.
    """

    task: Task
    columns: Mapping[str, str]
    label_column: str
    label_of: Callable[[str, Any], str]
    on_bad: str
    advice: str = ""

    def labelled(self, paths: Iterable[str], encoding: str, first: int) -> list[Example]:
        """Return the examples of files whose rows are numbered from `first`; rows without a label are left out."""
        examples: list[Example] = []
        for path in paths:
            rows = list(enumerate(formats.parse(pathlib.Path(path), encoding), first))
            first += len(rows)
            if not rows:
                logging.warning("%s: no rows", path)
            labelled = [(index, parsed) for index, parsed in rows if not self._is_unlabelled(path, parsed[1])]
            if left_out := len(rows) - len(labelled):
                message = "%s: %d of %d rows have no label in %r: left out"
                logging.warning(message, path, left_out, len(rows), self.label_column)
            if labelled:
                examples += self.examples(path, labelled)
        return examples

    def _is_unlabelled(self, path: str, row: dict[str, Any] | errors.UserError) -> bool:
        """Whether a row has an empty label or, in JSON lines, none; a label column of a similar name is a mistake."""
        if isinstance(row, errors.UserError):
            return False
        if self.label_column not in row:
            return pathlib.Path(path).suffix.lower() == ".jsonl" and not characters.similar(self.label_column, row)
        return is_empty(row[self.label_column])

    def examples(self, source: str, rows: Iterable[tuple[int, formats.Parsed]]) -> list[Example]:
        """Return the labelled examples; skip bad rows, with a warning, if `on_bad` or the task says so.

        `rows` gives the number of each row too.
        """
        examples: list[Example] = []
        bad: list[errors.UserError] = []
        for index, (place, row) in rows:
            try:
                examples.append(self._example(index, place, row))
            except errors.UserError as error:
                if not is_skipped(error, self.task, self.on_bad):
                    raise with_advice(error) from None
                bad.append(error)
        if not examples:
            raise errors.UserError(f"all {len(bad)} rows are bad; the first: {bad[0]}" if bad else f"{source}: no rows")
        if bad:
            messages = [str(error) for error in bad[:_MAX_NAMED]]
            if len(bad) > _MAX_NAMED:
                messages.append("…")
            count = len(bad) + len(examples)
            logging.warning("%s: %d of %d rows are left out: %s", source, len(bad), count, "; ".join(messages))
        return examples

    def _example(self, index: int, place: str, row: dict[str, Any] | errors.UserError) -> Example:
        """Return the labelled example of a parsed row; raise its error if the row is bad."""
        if isinstance(row, errors.UserError):
            raise row
        fields = self.task.fields_of(place, row, self.columns, self.advice)
        if self.label_column not in row:
            similar = characters.similar(self.label_column, row)
            if similar is not None:
                advice = f"did you mean --label_column={characters.shell_word(similar)}?"
            else:
                advice = "name it with --label_column=, or choose a file with labels"
            names = errors.join_names(row)
            raise errors.UserError(f"{place}: no label column {self.label_column!r}, only {names}: {advice}")
        label = self.label_of(place, row[self.label_column])
        used = {*self.columns.values(), self.label_column}
        extra = {name: value for name, value in row.items() if name not in used}
        return Example(fields, label, index, place, extra)
