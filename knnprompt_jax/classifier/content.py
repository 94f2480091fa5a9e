"""The content of a classifier apart from its model, store and states, as the files classifier.json and rows.jsonl."""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from knnprompt_jax import lm
from knnprompt_jax import options as options_lib
from knnprompt_jax.files import CLASSIFIER
from knnprompt_jax.prompts import layout
from knnprompt_jax.rules.choice import Choice
from knnprompt_jax.store import manifest
from knnprompt_jax.tasks.task import Example, Task

if TYPE_CHECKING:
    from knnprompt_jax.classifier.base import Classifier

ROWS = "rows.jsonl"


@dataclasses.dataclass(frozen=True)
class Content:
    """The class, task, options and rows of a classifier.

    Attributes:
      kind: the name of its class.
      labels: the labels as in y, in class order.
      num_rows: the number of rows given so far.
      given_task: the task that the next `fit` takes, without the classes of later rows; None: it infers one.
      source: the encoding and label column of the file that the rows came from, if it was one.
    """

    kind: str
    task: Task
    parameters: Mapping[str, Any]
    labels: Sequence[Any]
    num_rows: int
    demonstrations: tuple[Example, ...]
    anchors: tuple[Example, ...]
    choice: Choice | None = None
    source: Mapping[str, str] = dataclasses.field(default_factory=dict)
    given_task: Task | None = None

    @classmethod
    def of(
        cls, classifier: "Classifier", demonstrations: Sequence[Example], anchors: Iterable[Example], num_rows: int
    ) -> "Content":
        """Return the content of a classifier with these demonstrations and anchors."""
        options = classifier.option_names()
        return cls(
            type(classifier).__name__,
            classifier.task,
            {name: _writable(getattr(classifier, name)) for name in options}
            | {name: value for name, value in getattr(classifier, "made_with_", {}).items() if name in options},
            getattr(classifier, "labels_", np.array(classifier.task.labels)).tolist(),
            num_rows,
            tuple(demonstrations),
            tuple(anchors),
            getattr(classifier, "choice_", None),
            classifier.source_,
            classifier.given_task,
        )

    @classmethod
    def read(cls, folder: pathlib.Path) -> "Content":
        """Read the two files of a folder.

        Raises:
          OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError: a file is invalid.
        """
        described = json.loads((folder / CLASSIFIER).read_text(encoding="utf-8"))
        task, given = _task(described["task"]), described["given_task"]
        with (folder / ROWS).open(encoding="utf-8") as file:
            rows = [_example(task, json.loads(line)) for line in file]
        labels, num_rows, count = (described[name] for name in ("labels", "num_rows", "num_demonstrations"))
        if [str(label) for label in labels] != list(task.labels):
            raise ValueError("the labels are not the task's")
        if not isinstance(num_rows, int) or any(row.row >= num_rows for row in rows):
            raise ValueError(f"num_rows={num_rows!r}")
        return cls(
            described["class"],
            task,
            described["parameters"],
            labels,
            num_rows,
            tuple(rows[:count]),
            tuple(rows[count:]),
            Choice.from_dict(described["choice"]),
            {name: str(value) for name, value in described.get("source", {}).items()},
            None if described["infers_task"] is True else _task(given) if given else task,
        )

    def files(self) -> dict[str, str]:
        """Return the text of the two files by name."""
        described = {
            "class": self.kind,
            "task": dataclasses.asdict(self.task),
            "parameters": dict(sorted(self.parameters.items())),
            "labels": list(self.labels),
            "num_rows": self.num_rows,
            "num_demonstrations": len(self.demonstrations),
            "choice": self.choice and dataclasses.asdict(self.choice),
            "source": dict(self.source),
            "infers_task": self.given_task is None,
            "given_task": dataclasses.asdict(self.given_task) if self.given_task not in (None, self.task) else None,
        }
        lines = []
        for example in (*self.demonstrations, *self.anchors):
            row = {"id": example.row, "label": example.label, "fields": dict(example.fields)}
            optional = {"other": example.ids, "content": example.content}
            row |= {name: value for name, value in optional.items() if value}
            lines.append(json.dumps(row, ensure_ascii=False, default=str) + "\n")
        rows = "".join(lines).encode("utf-8", "backslashreplace").decode()  # Ids may hold lone surrogates.
        return {CLASSIFIER: json.dumps(described, indent=1, ensure_ascii=False, default=_to_json), ROWS: rows}

    def is_same(self, content: "Content") -> bool:
        """Return whether both have the same files, apart from the chosen rule."""
        return dataclasses.replace(self, choice=None).files() == dataclasses.replace(content, choice=None).files()

    def provenance(
        self, model: lm.Identity, task: Task, label_ids: Sequence[int], **prompt_options: str
    ) -> manifest.Provenance:
        """Return everything that makes anchors of these rows.

        Args:
          prompt_options: values of `truncation` and `label_token` that replace the classifier's.
        """
        own_options = {option: self.parameters[option] for option in ("truncation", "label_token")}
        return manifest.Provenance(
            model=model.name,
            fingerprint=model.fingerprint,
            dtype=model.dtype,
            deterministic=model.deterministic,
            context=model.context,
            task=task.name,
            template=task.template,
            labels=task.labels,
            label_words=task.label_words,
            label_ids=tuple(label_ids),
            demonstrations=manifest.text_hash(layout.demonstration_text(self.task, self.demonstrations)),
            num_demonstrations=len(self.demonstrations),
            **own_options | prompt_options,
        )


def _task(fields: Mapping[str, Any]) -> Task:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }
    return Task(**values)


def _example(task: Task, row: Mapping[str, Any]) -> Example:
    place = f"row {row['id']}"
    label, fields = task.label_of(place, row["label"]), task.fields_of(place, row["fields"])
    return Example(fields, label, int(row["id"]), place, dict(row.get("other", {})), str(row.get("content", "")))


def _writable(value: Any) -> Any:
    """Return a `class_prior` that is given by label with texts as keys, for JSON; other values are unchanged."""
    value = value.to_dict() if hasattr(value, "items") and hasattr(value, "to_dict") else value
    return {str(label): share for label, share in value.items()} if isinstance(value, Mapping) else value


def _to_json(value: Any) -> Any:
    """Convert to what JSON can write: NumPy's values to Python's, options to dictionaries."""
    return value.to_dict() if isinstance(value, options_lib.Options) else value.tolist()
