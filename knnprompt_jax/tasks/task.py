"""Tasks and examples: an `Example` is one row, a `Task` turns rows into text and labels into words."""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from absl import logging

from knnprompt_jax import characters, errors
from knnprompt_jax.tasks import cells, templates

ALLOW, SKIP, ERROR = EMPTY = ("allow", "skip", "error")
# Shares of rows that hold a text in a column of texts: `_HALF` suffices if no column has `_MOST`.
_MOST = 0.9
_HALF = 0.5
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)(\.0+)?")
_NEWLINE = re.compile(r"\n(?![^{}]*})")  # Excludes newlines within the name of a field.


@dataclasses.dataclass(frozen=True)
class Example:
    """One row of a task.

    Two examples are equal if all their columns are (`extra` too, e.g. CB's idx), wherever their rows come from.
    The published sampling removes demonstrations from the train rows by this equality.

    Attributes:
        fields: the task's texts by field name, not stripped; a text of blanks is "".
        label: the row's label string, one of the task's labels.
        row: 0-based index in the split it was loaded from.
        place: where the row is from, `file:line` for files.
        extra: the further columns of the row.
    """

    fields: Mapping[str, str]
    label: str
    row: int = dataclasses.field(default=-1, compare=False)
    place: str = dataclasses.field(default="", compare=False)
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def ids(self) -> dict[str, Any]:
        """The extra columns that are named like ids (`cells.is_named_as_identifier`)."""
        return {column: value for column, value in self.extra.items() if cells.is_named_as_identifier(column)}

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.fields.items())), self.label))


@dataclasses.dataclass(frozen=True)
class Task:
    """A declaration of a classification task.

    Attributes:
        name: the task on the command line, and its folder under the data folder.
        fields: the text fields of a row.
        template: the query, with the fields in braces ("Review: {sentence}" on a line, then "Sentiment:"); "{{" is a
            plain brace. It ends before the label word; a labelled text continues with a blank, the word and a newline.
        labels: the label strings of the rows; their order is the class order.
        label_words: the verbalizer, one word per label, in the same order.
        retrieval_template: the text by which similar examples are found; by default the fields joined by blanks.
        empty: how to treat a row with an empty field. "error" raises, "skip" skips the row in files and in `fit`,
            "allow" drops the lines of the template whose fields are all empty. A row needs at least one text.

    Raises:
        UserError: the declaration contradicts itself.
    """

    name: str
    fields: tuple[str, ...]
    template: str
    labels: tuple[str, ...]
    label_words: tuple[str, ...]
    retrieval_template: str = ""
    empty: str = ERROR

    def __post_init__(self) -> None:
        if self.empty not in EMPTY:
            raise self._error(f"empty={self.empty!r}: choose from {', '.join(EMPTY)}")
        for attribute in ("name", "fields", "template", "labels", "label_words"):
            if not getattr(self, attribute):
                raise self._error(f"{attribute} is empty")
        for attribute in ("fields", "labels", "label_words"):
            self._check_names(attribute)
        if awkward := templates.awkward(self.fields):
            raise self._error(f"a template cannot name the field {awkward[0]!r}, which has a brace; rename it")
        if len(self.labels) != len(self.label_words):
            raise self._error(f"{len(self.labels)} labels but {len(self.label_words)} label words")
        if self.template != self.template.rstrip():
            raise self._error("the template ends in white space; it must end where the word follows")
        if not self.retrieval_template:
            object.__setattr__(self, "retrieval_template", " ".join(f"{{{field}}}" for field in self.fields))
        for attribute in ("template", "retrieval_template"):
            self._check_template(attribute)

    def _check_names(self, attribute: str) -> None:
        """Raise UserError unless the names are distinct, non-empty strings."""
        names = getattr(self, attribute)
        if any(not isinstance(name, str) or not name.strip() for name in names):
            raise self._error(f"{attribute} must be non-empty strings, got {list(names)}")
        if repeated := errors.repeated(names):
            raise self._error(f"{attribute} holds {repeated[0]!r} more than once")
        # A prompt has a blank before its word. Labels are words without change if two of them differ only in blanks.
        padded = [name for name in names if name != name.strip() and name not in self.labels]
        if attribute == "label_words" and padded:
            raise self._error(f"{attribute} has blanks at the ends of {padded[0]!r}; write {padded[0].strip()!r}")

    def _check_template(self, attribute: str) -> None:
        """Raise UserError unless the template uses every field, and nothing else."""
        template = getattr(self, attribute)
        try:
            used = templates.names(template)
        except ValueError as error:
            raise self._error(f"{attribute} {template!r} is not a template: {error}") from error
        if unknown := [name for name in used if name not in self.fields]:
            raise self._error(f"{attribute} has {{{characters.escaped(unknown[0])}}}{self._advice(unknown[0])}")
        if unused := set(self.fields).difference(used):
            field = min(unused)
            is_plain = f"{{{{{field}}}}}" in template
            hint = f": {{{{{field}}}}} is text in braces; write {{{field}}}" if is_plain else ""
            raise self._error(f"{attribute} does not use the field {field!r}{hint}")

    def _advice(self, unknown: str) -> str:
        """Return how to write an unknown name in a template."""
        if not unknown:
            return f": a field's name is required in braces; write {{{self.fields[0]}}}"
        for field in self.fields:
            rest = unknown.removeprefix(field)
            if unknown != rest and rest.startswith(("!", ":", ".", "[", "=")):
                return f": only a field can be in braces, without {rest!r}; write {{{field}}}"
        return f"; choose from the fields {errors.alternatives(unknown, self.fields)}"

    @property
    def titles(self) -> tuple[str, ...]:
        """The classes as pages name them: the label words if a person chose them, or else the labels."""
        return characters.shown(self.labels if self.label_words == _words(self.labels) else self.label_words)

    @classmethod
    def infer(
        cls,
        X: Any,
        y: Iterable[Any] | None = None,
        *,
        label: str = "label",
        fields: Sequence[str] | None = None,
        template: str = "",
        name: str = "own",
        empty: str = ALLOW,
    ) -> "Task":
        """Return a task inferred from rows: its fields are the columns of texts, its label words are the labels.

        Args:
            X: texts (their field is called "text"), rows as mappings, or a table of pandas, polars or pyarrow.
            y: the labels; by default the column `label` of X.
            label: the name of the label, in X and in the template.
            fields: the columns to use; by default all columns of texts except the label and identifiers
                (`cells.is_identifier`). Up to a tenth of the rows may lack a column of texts, or hold something else
                there: such rows are bad. If there is no such column, up to half of the rows may.
            template: by default a line for each field, "Title: {title}", then "Label, in one word:".
            name: the name of the task.
            empty: how to treat rows with an empty field, as in `Task`.

        Raises:
            UserError: a column or label is missing, no column holds texts or one holds the labels, or a label is
                neither a text nor a whole number.
        """
        rows = cells.rows_of(X, fields or ("text",))
        if not rows:
            raise errors.UserError(f"task {name!r}: X is empty: at least one row is required")
        if fields is None:
            fields = _text_columns(name, rows, None if y is not None else label)
        if awkward := [field for field in fields if not isinstance(field, str)]:
            raise errors.UserError(f"task {name!r}: the name of column {awkward[0]!r} is not a text; rename it")
        if y is None:
            y = _column(rows, label)
        cells.check_ordered("y", y)
        y = cells.as_python(y)
        labels_N = [cells.label_string(f"row {index}", value) for index, value in enumerate(y)]
        cells.check_paired(len(rows), len(labels_N))
        _check_no_labels(name, rows, fields, labels_N)
        labels = sorted(set(labels_N), key=_label_order)
        _check_nameable(name, fields)
        lines = [f"{_capitalized(field)}: {{{field}}}\n" for field in fields]
        return cls(
            name=name,
            fields=tuple(fields),
            template=template or f"{''.join(lines)}{templates.quoted(_capitalized(label))}, in one word:",
            labels=tuple(labels),
            label_words=_words(labels),
            empty=empty,
        )

    def with_labels(self, names: Iterable[str]) -> "Task":
        """Return the task with new labels after its own, ordered and named as by `infer`.

        Raises:
            UserError: a new label is empty, or is the word of another label.
        """
        new = sorted({name for name in names if self.find_label(name) is None}, key=_label_order)
        if not new:
            return self
        if conflicts := sorted(set(new) & set(self.label_words)):
            label = self.labels[self.label_words.index(conflicts[0])]
            choices = errors.join_names(self.labels)
            raise self._error(f"{conflicts[0]!r} is not a label but the word of {label!r}: choose from {choices}")
        words = _words(new, self.label_words)
        return dataclasses.replace(self, labels=(*self.labels, *new), label_words=(*self.label_words, *words))

    def _error(self, message: str) -> errors.UserError:
        return errors.UserError(f"task {self.name!r}: {message}")

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the whole declaration, so that tasks that can give different results have different digests."""
        return hashlib.sha256(json.dumps(dataclasses.astuple(self)).encode()).hexdigest()

    @property
    def num_classes(self) -> int:
        return len(self.labels)

    def class_index(self, label: str) -> int:
        """Return the class of a label string; raise UserError with the choices if there is none."""
        if label not in self.classes:
            choices = errors.alternatives(label, self.labels)
            raise errors.UserError(f"task {self.name!r} has no label {label!r}; choose from {choices}")
        return self.classes[label]

    @functools.cached_property
    def classes(self) -> Mapping[str, int]:
        """Class indices by label string."""
        return {label: index for index, label in enumerate(self.labels)}

    @functools.cached_property
    def _by_identity(self) -> Mapping[Any, str | None]:
        """Labels by `characters.identity`; None where several labels have one."""
        found: dict[Any, str | None] = {}
        for label in self.labels:
            key = characters.identity(label)
            found[key] = None if key in found else label
        return found

    def find_label(self, name: str, merges: bool = False) -> str | None:
        """Return the label of that name, or None.

        The names of a whole number with and without decimals, "1" and "1.0", are one: pandas converts a column of
        integers with an empty cell. With `merges`, the label needs only the same `characters.identity`.
        """
        if name in self.classes:
            return name
        if merges or _WHOLE.fullmatch(name):
            label = self._by_identity.get(characters.identity(name))
            return label if merges or (label and _WHOLE.fullmatch(label)) else None
        return None

    def fields_of(
        self, place: str, row: Mapping[str, Any], columns: Mapping[str, str] | None = None, advice: str = ""
    ) -> dict[str, str]:
        """Return the task's texts in a row.

        Args:
            place: where the row is.
            row: its cells by column.
            columns: the column of each field that does not have the field's name.
            advice: the end of the message about a missing column.

        Raises:
            UserError: a text is missing, not a string, or empty although the task does not allow it; the message names
                the place.
        """
        texts = {}
        for field in self.fields:
            column = (columns or {}).get(field, field)
            if column not in row:
                names = errors.alternatives(column, row)
                raise errors.UserError(f"{place}: lacks the field {column!r}; it has {names}{advice}")
            text = "" if cells.is_empty(row[column]) else row[column]
            if not isinstance(text, str):
                raise errors.UserError(f"{place}: field {column!r} is not a text ({type(text).__name__})")
            if not text and (self.empty != ALLOW or len(self.fields) == 1):
                raise errors.EmptyCell(f"{place}: field {column!r} is empty")
            texts[field] = str.__str__(text)  # Of an enumeration of texts, the text.
            cells.check_characters(f"{place}: field {column!r}", text)
        if not any(texts.values()):
            raise errors.EmptyCell(f"{place}: all fields are empty: {errors.join_names(self.fields)}")
        return texts

    def label_of(self, place: str, label: Any, merges: bool = False) -> str:
        """Return the task's label string of a row's label (`find_label`); raise UserError with the place if none is."""
        name = cells.label_string(place, label)
        found = self.find_label(name, merges)
        if found is None:
            choices = errors.alternatives(name, self.labels)
            raise errors.UserError(f"{place}: unknown label {name!r}; choose from {choices}")
        return found

    def render(self, example: Example, label: str | None = None) -> str:
        """Return the query text of an example or, given a label string, its labelled text, ending in a newline."""
        query = templates.fill(self._template_for(example.fields), example.fields)
        return query if label is None else f"{query} {self.label_words[self.class_index(label)]}\n"

    def _template_for(self, fields: Mapping[str, str]) -> str:
        """Return the template, without lines whose fields are all empty if these are allowed; the last line stays.

        If all fields are empty, return the whole template: calibrations compare with such a query, which no row is.
        """
        has_text = [bool(text.strip()) for text in fields.values()]
        if self.empty != ALLOW or all(has_text) or not any(has_text):
            return self.template
        *lines, last = _NEWLINE.split(self.template)
        used = [[fields[name] for name in templates.names(line)] for line in lines]
        kept = [line for line, texts in zip(lines, used, strict=True) if not texts or "".join(texts).strip()]
        return "\n".join([*kept, last])

    def retrieval_text(self, example: Example) -> str:
        """Return the text that sentence encoders and BM25 compare."""
        return templates.fill(self.retrieval_template, example.fields)


def _text_columns(name: str, rows: Sequence[Mapping[str, Any]], label: str | None) -> list[str]:
    """Return the columns of texts besides `label` and those that one of our commands wrote.

    Identifiers are excluded unless every column is one.
    """
    names = dict.fromkeys(column for row in rows for column in row)
    excluded = {label, *cells.written_columns({*names})}
    values = {column: [row[column] for row in rows if column in row] for column in names if column not in excluded}
    shares = {column: cells.text_share(present) * len(present) / len(rows) for column, present in values.items()}
    columns = [column for column, share in shares.items() if share >= _MOST]
    columns = columns or [column for column, share in shares.items() if share >= _HALF]
    if not columns:
        kinds = [column if column == label else f"{column} ({_kind(values.get(column))})" for column in names]
        raise errors.UserError(f"task {name!r}: no column holds texts, only {errors.join_names(kinds)}")
    texts = [column for column in columns if not cells.is_identifier(str(column), values[column])]
    if partly := [column for column, share in shares.items() if _HALF <= share < _MOST and column not in columns]:
        message = "task %r: column %r is left out, because only %.0f %% of the rows hold a text there"
        logging.warning(message, name, partly[0], 100 * shares[partly[0]])
    if not texts:
        logging.warning("task %r: all columns are ids, numbers or dates, so all are in the prompt", name)
    return texts or columns


def _kind(values: Sequence[Any] | None) -> str:
    """Return the type of a column's first value that is not empty, for a message."""
    if values is None:  # One of our commands wrote the column.
        return "a result of this program"
    return next((type(value).__name__ for value in values if not cells.is_empty(value)), "empty")


def _check_nameable(name: str, fields: Sequence[str]) -> None:
    """Raise UserError if no template can name a column."""
    if awkward := templates.awkward(fields):
        usable = ",".join(field for field in fields if field not in awkward)
        advice = f" or leave it out: --text_columns={characters.shell_word(usable)}" if usable else ""
        raise errors.UserError(
            f"task {name!r}: a template cannot name the column {awkward[0]!r}, which has a brace: rename it{advice}"
        )


def _column(rows: Sequence[Mapping[str, Any]], label: str) -> list[Any]:
    """Return the labels of rows; raise UserError if a row has none."""
    for index, row in enumerate(rows):
        if label not in row:
            names = errors.alternatives(label, row)
            raise errors.UserError(f"row {index}: no label column {label!r}, only {names}: name it with label=")
    return [row[label] for row in rows]


def _check_no_labels(
    name: str, rows: Sequence[Mapping[str, Any]], fields: Sequence[str], labels_N: Sequence[str]
) -> None:
    """Raise UserError if a field equals the label in every row."""
    for field in fields:
        cells_N = [row.get(field) for row in rows]
        if all(isinstance(cell, str) and cell == label for cell, label in zip(cells_N, labels_N, strict=True)):
            raise errors.UserError(
                f"task {name!r}: column {field!r} holds the labels: leave it out of X, or name the others "
                "(--text_columns=)"
            )


def _capitalized(name: str) -> str:
    """Return the name with its first letter in upper case."""
    return f"{name[:1].upper()}{name[1:]}"


def _label_order(label: str) -> tuple[bool, int, str]:
    """Return a sort key: numbers by size, before all other labels."""
    is_number = cells.is_number(label)
    return not is_number, int(label) if is_number else 0, label


def _words(labels: Sequence[str], used: Sequence[str] = ()) -> tuple[str, ...]:
    """Return a word per label: the label with blanks for underscores, or all labels if words were equal or empty."""
    words = [label.replace("_", " ").strip() for label in labels]
    return tuple(words if all(words) and len({*words, *used}) == len(words) + len(used) else labels)
