"""Classifiers in folders: the datastore, and as JSON the task, the options, the demonstrations and the anchors' rows.

Such a folder is whole or not there, and nothing in it is code.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from knnprompt_jax import errors, files, parallel
from knnprompt_jax import lm as lm_lib
from knnprompt_jax.classifier import inputs
from knnprompt_jax.store import manifest, storage, stores
from knnprompt_jax.tasks import sources
from knnprompt_jax.tasks.task import Example, Task

FORMAT = 1
_STORE, _CLASSIFIER, _ROWS = "store", "classifier.json", "rows.jsonl"


@dataclasses.dataclass(frozen=True)
class Content:
    """What a classifier is beside its model and datastore.

    `labels` are the labels as they stood in y, in class order; `num_rows` is how many rows it was given so far.
    """

    task: Task
    parameters: Mapping[str, Any]
    labels: Sequence[Any]
    num_rows: int
    demonstrations: tuple[Example, ...]
    anchors: tuple[Example, ...]


def save(
    folder: pathlib.Path, content: Content, model: lm_lib.LanguageModel, store: stores.Store, overwrite: bool
) -> None:
    """Writes a classifier into a folder. Where a run has several processes all of them call this.

    Raises:
        UserError: the folder exists already and is not to be overwritten.
    """
    folder = _absolute(folder)
    if storage.recovered(folder) and not overwrite:
        raise errors.UserError(f"{folder}: exists already; choose another folder, or overwrite=True")
    draft = files.draft(folder)
    if parallel.is_main():
        files.begin_folder(folder)
        (draft / _CLASSIFIER).write_text(
            json.dumps(_described(content), indent=1, ensure_ascii=False), encoding="utf-8"
        )
        with (draft / _ROWS).open("w", encoding="utf-8") as file:
            file.writelines(_lines(content))
    parallel.wait_for_all("classifier described")
    storage.save(draft / _STORE, store, _provenance(content, model, store.codec.label_ids), anchors=_digest(draft))
    if parallel.is_main():
        files.finish_folder(folder)
    parallel.wait_for_all("classifier finished")


def read(folder: pathlib.Path) -> tuple[Content, manifest.Provenance]:
    """A saved classifier without its model and datastore, and what made its anchors.

    Raises:
        UserError: there is none in the folder, a file of it is missing or altered, or a newer version wrote it.
    """
    folder = _absolute(folder)
    if not storage.recovered(folder) or not (folder / _CLASSIFIER).is_file():
        raise errors.UserError(f"{folder}: not a saved classifier: it has no {_CLASSIFIER}")
    saved = manifest.read(folder / _STORE)
    try:
        if _digest(folder) != saved.anchors:
            raise errors.UserError(f"{folder}: {_CLASSIFIER} or {_ROWS} was altered since it was written")
        return _parsed(folder), saved.provenance
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, errors.UserError):
            raise
        raise errors.UserError(f"{folder}: not a saved classifier: {type(error).__name__}: {error}") from None


def load_store(
    folder: pathlib.Path, content: Content, model: lm_lib.LanguageModel, label_ids: Sequence[int]
) -> stores.Store:
    """The datastore of a saved classifier on the model's devices.

    Raises:
        UserError: as `storage.open_folder`, and where its anchors are not those of the rows.
    """
    folder, mesh = _absolute(folder), model.mesh if model.mesh.size > 1 else None
    saved = storage.open_folder(folder / _STORE, _provenance(content, model, label_ids))
    store = saved.load(model.head, mesh=mesh, memory_mb=content.parameters["memory_mb"])
    ids, classes = inputs.numbers_of(content.anchors), inputs.classes_of(content.task, content.anchors)
    if not (np.array_equal(store.ids_N, ids) and np.array_equal(store.labels_N, classes)):
        raise errors.UserError(f"{folder}: the datastore's anchors are not those of {_ROWS}")
    return store


def _provenance(content: Content, model: lm_lib.LanguageModel, label_ids: Sequence[int]) -> manifest.Provenance:
    return manifest.describe(
        model.name,
        model.fingerprint,
        model.tokenizer,
        str(model.head.rows_VE.dtype),
        content.task,
        label_ids,
        content.demonstrations,
        content.parameters["truncation"],
    )


def _absolute(folder: pathlib.Path) -> pathlib.Path:
    return folder.expanduser().absolute()


def _described(content: Content) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "task": dataclasses.asdict(content.task),
        "parameters": {name: _plain(value) for name, value in content.parameters.items()},
        "labels": list(content.labels),
        "num_rows": content.num_rows,
        "num_demonstrations": len(content.demonstrations),
    }


def _lines(content: Content) -> Iterable[str]:
    """A row a line, those of the demonstrations first."""
    for example in (*content.demonstrations, *content.anchors):
        row = {"id": example.row, "label": example.label, "fields": dict(example.fields)}
        yield json.dumps(row, ensure_ascii=False) + "\n"


def _parsed(folder: pathlib.Path) -> Content:
    described = json.loads((folder / _CLASSIFIER).read_text(encoding="utf-8"))
    if described["format"] > FORMAT:
        raise errors.UserError(
            f"{folder}: format {described['format']} is newer than this version reads ({FORMAT}): update knnprompt_jax"
        )
    declared: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in described["task"].items()
    }
    task = Task(**declared)
    with (folder / _ROWS).open(encoding="utf-8") as file:
        rows = [_example(task, json.loads(line)) for line in file]
    labels, num_rows, count = (described[name] for name in ("labels", "num_rows", "num_demonstrations"))
    if [str(label) for label in labels] != list(task.labels):
        raise ValueError("the labels are not the task's")
    if not isinstance(num_rows, int) or any(row.row >= num_rows for row in rows):
        raise ValueError(f"num_rows={num_rows!r}")
    return Content(task, described["parameters"], labels, num_rows, tuple(rows[:count]), tuple(rows[count:]))


def _example(task: Task, row: Mapping[str, Any]) -> Example:
    place = f"row {row['id']}"
    label = sources.label_of(task, place, row["label"])
    return Example(sources.fields_of(task, place, row["fields"]), label, int(row["id"]), place)


def _digest(folder: pathlib.Path) -> str:
    """SHA-256 of the files that say what the anchors are."""
    sums = [manifest.file_hash(folder / name) for name in (_CLASSIFIER, _ROWS)]
    return hashlib.sha256("".join(sums).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """A number of NumPy as one of Python, which JSON can write."""
    return value.item() if isinstance(value, np.generic) else value
