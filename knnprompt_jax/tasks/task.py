"""Tasks and examples: an `Example` is one row, a `Task` turns rows into text and labels into words.

Templates are texts with the names of fields in braces; `{{` and `}}` are plain braces. Unlike in `str.format`, a name
may hold any characters but braces, as the columns of exports do: `{user.text}`.
"""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from knnprompt_jax.common import errors
from knnprompt_jax.tasks import columns

_NEWLINE = re.compile(r"\n(?![^{}]*})")  # Excludes newlines within the name of a field.
_TEMPLATE = re.compile(r"(?:[^{}]|\{\{|\}\}|\{[^{}]*\})*")
_PART = re.compile(r"((?:[^{}]|\{\{|\}\})*)(?:\{([^{}]*)\})?")  # A text and the name after it.


def fold(text: str) -> str:
    """Return the text without differences of case and blanks; two texts are the same if these are equal."""
    return " ".join(text.casefold().split())


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
        """The extra columns that are named like ids (`columns.is_named_as_identifier`)."""
        return {column: value for column, value in self.extra.items() if columns.is_named_as_identifier(column)}

    @property
    def text_key(self) -> tuple[str, ...]:
        """A key that is equal for two examples with the same texts (`fold`), in any order of their fields."""
        return tuple(sorted(map(fold, self.fields.values())))

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.fields.items())), self.label))


@dataclasses.dataclass(frozen=True)
class Task:
    """A declaration of a classification task.

    Attributes:
        name: the task on the command line, and its folder under the data folder.
        fields: the text fields of a row. A row needs at least one text.
        template: the query, with the fields in braces ("Review: {sentence}" on a line, then "Sentiment:"); "{{" is a
            plain brace. Lines whose fields are all empty are left out. It ends before the label word; a labelled text
            continues with a blank, the word and a newline.
        labels: the label strings of the rows; their order is the class order.
        label_words: the verbalizer, one word per label, in the same order.
        retrieval_template: the text by which similar examples are found; by default the fields joined by blanks.
        descriptions: a text about each class, in the same order; () without them.

    Raises:
        UserError: the declaration contradicts itself.
    """

    name: str
    fields: tuple[str, ...]
    template: str
    labels: tuple[str, ...]
    label_words: tuple[str, ...]
    retrieval_template: str = ""
    descriptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for attribute in ("fields", "labels", "label_words", *(["descriptions"] if self.descriptions else [])):
            self._check_names(attribute)
        for name, texts in (("label words", self.label_words), ("descriptions", self.descriptions or self.labels)):
            if len(self.labels) != len(texts):
                raise self._error(f"{len(self.labels)} labels but {len(texts)} {name}")
        if self.template != self.template.rstrip():
            raise self._error("the template ends in white space; it must end where the word follows")
        if not self.retrieval_template:
            object.__setattr__(self, "retrieval_template", " ".join(f"{{{field}}}" for field in self.fields))
        for attribute in ("template", "retrieval_template"):
            self._check_template(attribute)

    def _check_names(self, attribute: str) -> None:
        """Raise UserError unless there are distinct, non-empty strings, of which a prompt keeps every blank."""
        names = getattr(self, attribute)
        if not names or any(not isinstance(name, str) or not name.strip() for name in names):
            raise self._error(f"{attribute} must be non-empty strings, got {list(names)}")
        if repeated := errors.repeated(names):
            raise self._error(f"{attribute} holds {repeated[0]!r} more than once")
        padded = [name for name in names if name != name.strip()]
        if attribute != "fields" and padded:
            raise self._error(f"{attribute} has blanks at the ends of {padded[0]!r}; write {padded[0].strip()!r}")

    def _check_template(self, attribute: str) -> None:
        """Raise UserError unless the template uses every field, and nothing else."""
        template = getattr(self, attribute)
        with errors.prefixed(f"task {self.name!r}: {attribute} {template!r} is not a template"):
            used = field_names(template)
        if set(self.fields) != set(used):
            fields = errors.join_names(self.fields)
            found = f"{attribute} {template!r} has {errors.join_names(used)} in braces"
            raise self._error(f"{found}; the fields are {fields}")

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
        """Return a task inferred from rows: its fields are the columns of texts, its label words are the labels.

        Args:
            X: texts (their field is called "text"), rows as mappings, or a table of pandas, polars or pyarrow.
            y: the labels; by default the column `label` of X.
            label: the name of the label, in X and in the template.
            fields: the columns to use; by default `columns.text_columns`.
            template: by default a line for each field, "Title: {title}", then "Label, in one word:".
            name: the name of the task.

        Raises:
            UserError: a column or label is missing, no column holds texts or one holds the labels, or a label is
                neither a text nor a whole number.
        """
        rows = columns.rows_of(X, fields or ("text",))
        if not rows:
            raise errors.UserError("no rows: give some, or a task")
        fields = fields or columns.text_columns(rows, None if y is not None else label)
        values = [row.get(label) for row in rows] if y is None else columns.as_list("y", y)
        columns.check_paired(len(rows), len(values))
        labels_N = [columns.label_string(f"row {index}, {label!r}", value) for index, value in enumerate(values)]
        for field in fields:
            texts = [row.get(field) for row in rows]
            if all(isinstance(text, str) for text in texts) and texts == labels_N:
                raise errors.UserError(f"column {field!r} holds the labels: leave it out (--text_columns=)")
        labels = sorted(set(labels_N))
        labels.sort(key=lambda label: int(label) if columns.is_number(label) else float("inf"))
        lines = [f"{_capitalized(field)}: {{{field}}}\n" for field in fields]
        heading = _capitalized(label).replace("{", "{{").replace("}", "}}")
        return cls(
            name=name,
            fields=tuple(fields),
            template=template or f"{''.join(lines)}{heading}, in one word:",
            labels=tuple(labels),
            label_words=_words(labels),
        )

    def _error(self, message: str) -> errors.UserError:
        return errors.UserError(f"task {self.name!r}: {message}")

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the whole declaration, so that tasks that can give different results have different digests."""
        values = dataclasses.astuple(self)
        # Records of tasks without descriptions keep their digests.
        return hashlib.sha256(json.dumps(values if self.descriptions else values[:-1]).encode()).hexdigest()

    @property
    def num_classes(self) -> int:
        return len(self.labels)

    def class_index(self, label: str) -> int:
        """Return the class of a label string; raise UserError with the choices if there is none."""
        if label not in self.classes:
            raise self._error(f"unknown label {label!r}; choose from {errors.join_names(self.labels)}")
        return self.classes[label]

    @functools.cached_property
    def classes(self) -> Mapping[str, int]:
        """Class indices by label string."""
        return {label: index for index, label in enumerate(self.labels)}

    def fields_of(self, place: str, row: Mapping[str, Any]) -> dict[str, str]:
        """Return the task's texts in a row, as `columns.text_cells`."""
        return columns.text_cells(place, row, dict(zip(self.fields, self.fields, strict=True)))

    def label_of(self, place: str, label: Any) -> str:
        """Return a row's label as a string; raise UserError with the place unless it is one of the task's."""
        name = columns.label_string(place, label)
        if name not in self.classes:
            raise errors.UserError(f"{place}: unknown label {name!r}; choose from {errors.join_names(self.labels)}")
        return name

    def render(self, example: Example, label: str | None = None) -> str:
        """Return the query text of an example or, given a label string, its labelled text, ending in a newline."""
        query = fill(self._template_for(example.fields), example.fields)
        return query if label is None else f"{query} {self.label_words[self.class_index(label)]}\n"

    def _template_for(self, fields: Mapping[str, str]) -> str:
        """Return the template without lines whose fields are all empty; the last line stays.

        If all fields are empty, return the whole template: calibrations compare with such a query, which no row is.
        """
        has_text = [bool(text.strip()) for text in fields.values()]
        if all(has_text) or not any(has_text):
            return self.template
        *lines, last = _NEWLINE.split(self.template)
        used = [[fields[name] for name in field_names(line)] for line in lines]
        kept = [line for line, texts in zip(lines, used, strict=True) if not texts or "".join(texts).strip()]
        return "\n".join([*kept, last])

    def described(self) -> list[Example]:
        """Return an example of each class, whose text in every field is its description or, without any, its name."""
        names = [word.replace("_", " ").replace(".", " ").strip() or word for word in self.label_words]
        return [
            Example(dict.fromkeys(self.fields, text), label, row, f"the description of {label}")
            for row, (text, label) in enumerate(zip(self.descriptions or names, self.labels, strict=True))
        ]

    def retrieval_text(self, example: Example) -> str:
        """Return the text that sentence encoders and BM25 compare."""
        return fill(self.retrieval_template, example.fields)


def _capitalized(name: str) -> str:
    """Return the name with its first letter in upper case."""
    return f"{name[:1].upper()}{name[1:]}"


def _words(labels: Sequence[str]) -> tuple[str, ...]:
    """Return a word per label: the label with blanks for underscores, or all labels if words were equal or empty."""
    words = [label.replace("_", " ").strip() for label in labels]
    return tuple(words if all(words) and len(set(words)) == len(words) else labels)


def field_names(template: str) -> list[str]:
    """Return the names in braces, in order; raise UserError if a brace is single."""
    return [name for _, name in _parse(template) if name is not None]


def fill(template: str, values: Mapping[str, str]) -> str:
    """Return the template with a value for each name."""
    return "".join(text if name is None else text + values[name] for text, name in _parse(template))


@functools.lru_cache(maxsize=256)
def _parse(template: str) -> tuple[tuple[str, str | None], ...]:
    """Return pairs of a text and the name after it, or None at the end."""
    if not _TEMPLATE.fullmatch(template):
        raise errors.UserError("a brace is single; a plain brace is written twice")
    parts = _PART.finditer(template)
    return tuple((part[1].replace("{{", "{").replace("}}", "}"), part[2]) for part in parts)
