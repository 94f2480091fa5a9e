"""One JSON record per run and method: everything needed to repeat it, and what came out for every row."""

import dataclasses
import hashlib
import json
import pathlib
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from sklearn import metrics

from knnprompt_jax import errors, files, parallel
from knnprompt_jax.store import manifest

FORMAT = 4
_SHOWN, _SHOWN_CHARACTERS = 8, 60


@dataclasses.dataclass(frozen=True)
class Record:
    """The outcome of one method on one split of one task with one model.

    `experiment` is the grid that the run belongs to, if any, and `cell` its place on those axes that are no fields of their own.
    `datastore` says what the anchors took, where they lay and how they were searched.
    `candidates` are the accuracies of the prompts or templates of which the best on these rows was kept, if any were.
    `decided_by_rounding` are the places, from 0, of predictions that another machine, dtype or arrangement may give otherwise
    (`classifier.rounding`); None where the method does not say.
    `predicted` and `true` hold label strings, one per evaluation row, in the order of the split. Times are in seconds.
    A file also has `macro_f1`, which follows from these.
    """

    task: str
    model: str
    method: str
    seed: int
    shots: int
    demo_shots: int
    accuracy: float
    predicted: tuple[str, ...]
    true: tuple[str, ...]
    settings: Mapping[str, Any]
    fingerprint: str = ""
    class_counts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    prompts: int = 0
    truncated_prompts: int = 0
    dropped_demonstrations: int = 0
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    prompts_per_second: float = 0.0
    lm_tokens: int = 0
    note: str = ""
    datastore: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    candidates: tuple[float, ...] = ()
    decided_by_rounding: tuple[int, ...] | None = None
    experiment: str = ""
    cell: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    environment: Mapping[str, str] = dataclasses.field(default_factory=lambda: environment())
    format: int = FORMAT

    @property
    def macro_f1(self) -> float:
        """The mean of the F1 of all classes that occur, as label or as prediction."""
        return float(metrics.f1_score(self.true, self.predicted, average="macro", zero_division=0))

    @property
    def name(self) -> str:
        """A file name that says what the record is and differs wherever the settings do."""
        decisive = [self.settings, self.fingerprint, self.experiment, dict(self.cell)]
        key = json.dumps(decisive, sort_keys=True, default=str)
        digest = hashlib.sha256(key.encode()).hexdigest()[:8]
        model = pathlib.PurePath(self.model).name
        return f"{self.task}-{model}-{self.method}-m{self.shots}-d{self.demo_shots}-seed{self.seed}-{digest}.json"


def environment() -> dict[str, str]:
    """Versions and the devices on which a run takes place."""
    return {
        **manifest.versions(),
        "device": jax.devices()[0].device_kind,
        "devices": str(jax.device_count()),
    }


def write(folder: pathlib.Path, record: Record) -> pathlib.Path:
    """Writes the record into the folder, whole or not at all, over an earlier one of the same name."""
    path, content = folder / record.name, {**dataclasses.asdict(record), "macro_f1": record.macro_f1}
    with files.refusals(folder):
        folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**content, "checksum": _checksum(content)}, indent=1, ensure_ascii=False)
    with files.new_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    return path


def read(path: pathlib.Path) -> Record:
    """The record in a file; raises UserError where it is none, one of another format, or altered since it was written."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise errors.UserError(f"{path}: not a record: {error}") from None
    if not isinstance(content, dict) or "format" not in content:
        raise errors.UserError(f"{path}: not a record of knnprompt_jax")
    if content["format"] != FORMAT:
        raise errors.UserError(f"{path}: a record of format {content['format']}, this version reads format {FORMAT}")
    fits = content.pop("checksum", None) == _checksum(content)
    content.pop("macro_f1", None)
    hints = typing.get_type_hints(Record)
    if set(content) != set(hints):
        raise errors.UserError(f"{path}: not a whole record: {', '.join(sorted(set(content) ^ set(hints)))}")
    for name, value in content.items():
        if not _fits(value, hints[name]):
            raise errors.UserError(f"{path}: not a record: {name} is {json.dumps(value)[:_SHOWN_CHARACTERS]}")
    if not fits:
        raise errors.UserError(f"{path}: altered since it was written (its checksum does not fit)")
    values: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in content.items()}
    return Record(**values)


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value that JSON gave is of a field's type."""
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind is types.UnionType:
        return any(_fits(value, each) for each in inner)
    if kind is tuple:
        return isinstance(value, list) and all(_fits(each, inner[0]) for each in value)
    if kind is Mapping:
        return isinstance(value, dict) and all(_fits(each, inner[1]) for each in value.values())
    if kind is float:
        return type(value) in (int, float)
    return kind is Any or type(value) is kind


def finished(folder: pathlib.Path, drafts: Sequence[Record]) -> dict[str, Record]:
    """The folder's records that stand for drafts and are whole and of the same rows, by name; others are to be made again.

    Of several processes, the first looks for all; those that do not see its folder have drafts in the records' place.
    """
    present = {draft.name: record for draft in drafts if (record := _whole(folder / draft.name, draft))}
    is_done = parallel.from_main(np.array([draft.name in present for draft in drafts], bool))
    return {draft.name: present.get(draft.name, draft) for draft, done in zip(drafts, is_done, strict=True) if done}


def _whole(path: pathlib.Path, draft: Record) -> Record | None:
    try:
        record = read(path)
    except errors.UserError:
        return None
    return record if record.true == draft.true else None


def read_all(folder: pathlib.Path) -> list[Record]:
    """The records of a folder, by name; folders in it are not read.

    Raises UserError where there is no folder, no record in it, or a JSON file that is none of this format.
    """
    if not folder.is_dir():
        raise errors.UserError(f"{folder}: no such folder of records")
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise errors.UserError(f"{folder}: no records: it holds {_listed(folder) or 'nothing'}")
    return [read(path) for path in paths]


def _listed(folder: pathlib.Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
