"""What is classified: an `Example` is one row, a `Task` says how rows become text and labels become words."""

import collections
import dataclasses
import functools
import hashlib
import json
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.tasks import tables

_LISTED = 50
_ID = re.compile(r"(?i:(^|[\W_])(id|idx|index|uuid|guid))$|[a-z]I[dD]$")


@dataclasses.dataclass(frozen=True)
class Example:
    """One row of a task.

    Two examples are equal when their rows are: every column counts (`other` too, e.g. CB's idx), the place does not.
    That is the equality of the published sampling, which removes demonstrations from the train rows by value.

    Attributes:
      fields: the task's texts by field name, as they stand in the row (never stripped).
      label: the row's label string, one of the task's labels.
      row: 0-based index in the split it was loaded from.
      source: where the row stands, `file:line` for files.
      other: the row's remaining columns.
      content: what a row is known by that a command appended to a classifier, so that it is not appended again; else empty.
    """

    fields: Mapping[str, str]
    label: str
    row: int = dataclasses.field(default=-1, compare=False)
    source: str = dataclasses.field(default="", compare=False)
    other: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    content: str = dataclasses.field(default="", compare=False)

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.fields.items())), self.label))


@dataclasses.dataclass(frozen=True)
class Task:
    """A classification task as a declaration.

    Attributes:
      name: what the task is called on the command line and its folder under the data folder.
      fields: the text fields of a row.
      template: the query, with the fields in braces ("Review: {sentence}\\nSentiment:"); "{{" is a plain brace.
        It ends where the label word belongs; a labelled text continues with a blank, the label word and a newline.
      labels: the label strings of the rows; their order is the class order.
      label_words: the verbalizer, one word per label, in the same order.
      retrieval_template: the text by which similar examples are looked for; by default the fields joined by blanks.

    Raises:
      UserError: on a declaration that contradicts itself.
    """

    name: str
    fields: tuple[str, ...]
    template: str
    labels: tuple[str, ...]
    label_words: tuple[str, ...]
    retrieval_template: str = ""

    def __post_init__(self) -> None:
        for what in ("name", "fields", "template", "labels", "label_words"):
            if not getattr(self, what):
                raise self._error(f"{what} is empty")
        for what in ("fields", "labels", "label_words"):
            self._check_names(what)
        if awkward := [field for field in self.fields if field.isdecimal() or set(field) & set(".[]{}!:")]:
            raise self._error(
                f"a template cannot name the field {awkward[0]!r}: no . [ ] {{ }} ! : and not a number alone"
            )
        if len(self.labels) != len(self.label_words):
            raise self._error(f"{len(self.labels)} labels but {len(self.label_words)} label words")
        if self.template != self.template.rstrip():
            raise self._error("the template ends in white space; it must end where the word follows")
        if not self.retrieval_template:
            object.__setattr__(self, "retrieval_template", " ".join(f"{{{field}}}" for field in self.fields))
        for what in ("template", "retrieval_template"):
            self._check_template(what)

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
    ) -> "Task":
        """A task from its rows: the columns that hold texts are its fields, the labels are its labels and label words.

        Args:
          X: texts (their field is called "text"), rows as mappings, or a table of pandas.
          y: the labels; without them the column `label` of X has them.
          label: what a label is called, in X and in the template.
          fields: the columns to use; by default all that hold nothing but texts, the labels and `is_identifier` aside.
          template: by default a line for each field, "Title: {title}", and what is asked for, "Label:".

        Raises:
          UserError: there is no such column, no column of texts, or a label that is no text or whole number.
        """
        rows = tables.rows_of(X, fields or ("text",))
        if not rows:
            raise errors.UserError(f"task {name!r}: X is empty: at least one row is needed")
        if fields is None:
            fields = [column for column in rows[0] if column != label or y is not None]
            fields = [column for column in fields if all(isinstance(row.get(column), str) for row in rows)]
            texts = [column for column in fields if not is_identifier(column, [row[column] for row in rows])]
            fields = texts or fields
        if y is None:
            if missing := [index for index, row in enumerate(rows) if label not in row]:
                place = missing[0]
                raise errors.UserError(f"row {place}: lacks the label {label!r}; it has {listed(rows[place])}")
            y = [row[label] for row in rows]
        names = {tables.label_string(f"row {index}", value) for index, value in enumerate(y)}
        labels = sorted(names, key=_label_order)
        lines = [f"{field[:1].upper()}{field[1:]}: {{{field}}}\n" for field in fields]
        return cls(
            name=name,
            fields=tuple(fields),
            template=template or f"{''.join(lines)}{label[:1].upper()}{label[1:]}:",
            labels=tuple(labels),
            label_words=_words(labels),
        )

    def with_labels(self, names: Iterable[str]) -> "Task":
        """The task with the labels that it lacks after its own, in the order and with the label words that `infer` would give them.

        Raises:
          UserError: a new label is empty, or the word of another.
        """
        new = sorted(set(names) - set(self.labels), key=_label_order)
        if not new:
            return self
        if taken := sorted(set(new) & set(self.label_words)):
            label = self.labels[self.label_words.index(taken[0])]
            raise self._error(f"{taken[0]!r} is no label but the word of {label!r}: choose from {listed(self.labels)}")
        words = _words(new, self.label_words)
        return dataclasses.replace(self, labels=(*self.labels, *new), label_words=(*self.label_words, *words))

    def _error(self, message: str) -> errors.UserError:
        return errors.UserError(f"task {self.name!r}: {message}")

    def _check_names(self, what: str) -> None:
        names = getattr(self, what)
        if any(not isinstance(name, str) or not name.strip() for name in names):
            raise self._error(f"{what} must be non-empty strings, got {list(names)}")
        repeated = [name for name, count in collections.Counter(names).items() if count > 1]
        if repeated:
            raise self._error(f"{what} holds {repeated[0]!r} more than once")

    def _check_template(self, what: str) -> None:
        template = getattr(self, what)
        try:
            parts = list(string.Formatter().parse(template))
        except ValueError as error:
            raise self._error(f"{what} {template!r} is not a template: {error}") from error
        used = [part[1:] for part in parts if part[1] is not None]
        for field, spec, conversion in used:
            if field not in self.fields or spec or conversion:
                raise self._error(f"{what} has {{{field}}}; choose from the fields {', '.join(self.fields)}")
        unused = set(self.fields) - {field for field, _, _ in used}
        if unused:
            raise self._error(f"{what} does not use the field {min(unused)!r}")

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the whole declaration: two tasks that can give different results have different digests."""
        return hashlib.sha256(json.dumps(dataclasses.astuple(self)).encode()).hexdigest()

    @property
    def num_classes(self) -> int:
        return len(self.labels)

    def class_index(self, label: str) -> int:
        """The class of a label string; raises UserError with the choices where there is none."""
        if label not in self.classes:
            raise errors.UserError(f"task {self.name!r} has no label {label!r}; choose from {listed(self.labels)}")
        return self.classes[label]

    @functools.cached_property
    def classes(self) -> Mapping[str, int]:
        """The class of each label string."""
        return {label: index for index, label in enumerate(self.labels)}

    def render(self, example: Example, label: str | None = None) -> str:
        """The query text of an example or, given a label string, its labelled text, which ends in a newline."""
        query = self.template.format_map(example.fields)
        return query if label is None else f"{query} {self.label_words[self.class_index(label)]}\n"

    def retrieval_text(self, example: Example) -> str:
        """The text that sentence encoders and BM25 compare."""
        return self.retrieval_template.format_map(example.fields)


def _label_order(label: str) -> tuple[bool, int, str]:
    """Numbers by their size, before all other labels."""
    return not label.isdecimal(), int(label) if label.isdecimal() else 0, label


def _words(labels: Sequence[str], taken: Sequence[str] = ()) -> tuple[str, ...]:
    """A word for each label: the label with blanks for underscores, or as it is where two words would be the same."""
    words = [label.replace("_", " ").strip() for label in labels]
    return tuple(words if len({*words, *taken}) == len(words) + len(taken) else labels)


def is_identifier(column: str, values: Iterable[str]) -> bool:
    """Whether a column holds ids, numbers or dates and no texts: single words, each with a digit, or in a column named as an id."""
    words = [value for value in values if value.strip()]
    named = is_named_as_identifier(column)
    return all(not re.search(r"\s", word.strip()) and (named or re.search(r"\d", word)) for word in words)


def is_named_as_identifier(column: str) -> bool:
    """Whether a column is called id, ticket_id, uuid, rowIndex or the like."""
    return bool(_ID.search(column.strip()))


def listed(names: Iterable[Any]) -> str:
    """Names for a message, with commas between them; of very many, the first."""
    names = list(map(str, names))
    more = f", … ({len(names)} in all)" if len(names) > _LISTED else ""
    return (", ".join(names[:_LISTED]) or "none") + more
