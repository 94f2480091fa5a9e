"""What a classifier is beside its model and store, and its two files in a saved folder: the task and the options, and the rows."""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from knnprompt_jax import options as options_lib
from knnprompt_jax.classifier import choosing, core
from knnprompt_jax.tasks import sources
from knnprompt_jax.tasks.task import Example, Task

CLASSIFIER, ROWS = "classifier.json", "rows.jsonl"


@dataclasses.dataclass(frozen=True)
class Content:
    """What a classifier is beside its model and store.

    `labels` are the labels as they stood in y, in class order; `num_rows` is how many rows it was given so far;
    `choice` is what was chosen.
    """

    task: Task
    parameters: Mapping[str, Any]
    labels: Sequence[Any]
    num_rows: int
    demonstrations: tuple[Example, ...]
    anchors: tuple[Example, ...]
    choice: choosing.Choice | None = None


def of(classifier: core.Classifier) -> Content:
    """What a fitted classifier is beside its model and store."""
    parameters = {name: getattr(classifier, name) for name in core.PARAMETERS}
    rows = (classifier.demonstrations_, tuple(classifier.anchors_.values()))
    return Content(
        classifier.task, parameters, classifier.labels_.tolist(), classifier.num_rows_, *rows, classifier.choice_
    )


def same(first: Content, second: Content) -> bool:
    """Whether two classifiers would be written alike, but for what is chosen."""
    first, second = (dataclasses.replace(content, choice=None) for content in (first, second))
    return _described(first) == _described(second) and list(_lines(first)) == list(_lines(second))


def write(folder: pathlib.Path, content: Content) -> None:
    """Writes the two files."""
    described = json.dumps(_described(content), indent=1, ensure_ascii=False)
    (folder / CLASSIFIER).write_text(described, encoding="utf-8")
    (folder / ROWS).write_text("".join(_lines(content)), encoding="utf-8")


def read(folder: pathlib.Path) -> Content:
    """Reads them; raises errors of many kinds where they are not such files."""
    described = json.loads((folder / CLASSIFIER).read_text(encoding="utf-8"))
    declared: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in described["task"].items()
    }
    task = Task(**declared)
    with (folder / ROWS).open(encoding="utf-8") as file:
        rows = [_example(task, json.loads(line)) for line in file]
    labels, num_rows, count = (described[name] for name in ("labels", "num_rows", "num_demonstrations"))
    if [str(label) for label in labels] != list(task.labels):
        raise ValueError("the labels are not the task's")
    if not isinstance(num_rows, int) or any(row.row >= num_rows for row in rows):
        raise ValueError(f"num_rows={num_rows!r}")
    choice = choosing.Choice.from_dict(described["choice"])
    return Content(task, described["parameters"], labels, num_rows, tuple(rows[:count]), tuple(rows[count:]), choice)


def _example(task: Task, row: Mapping[str, Any]) -> Example:
    place = f"row {row['id']}"
    label = sources.label_of(task, place, row["label"])
    content = str(row.get("content", ""))
    return Example(sources.fields_of(task, place, row["fields"]), label, int(row["id"]), place, content=content)


def _described(content: Content) -> dict[str, Any]:
    return {
        "task": dataclasses.asdict(content.task),
        "parameters": {name: _plain(value) for name, value in content.parameters.items()},
        "labels": list(content.labels),
        "num_rows": content.num_rows,
        "num_demonstrations": len(content.demonstrations),
        "choice": content.choice and dataclasses.asdict(content.choice),
    }


def _lines(content: Content) -> Iterable[str]:
    """A row per line, those of the demonstrations first."""
    for example in (*content.demonstrations, *content.anchors):
        row = {"id": example.row, "label": example.label, "fields": dict(example.fields)}
        if example.content:
            row["content"] = example.content
        yield json.dumps(row, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    """What JSON can write: numbers of NumPy as Python's, options as dictionaries."""
    if isinstance(value, options_lib.Options):
        return value.to_dict()
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
