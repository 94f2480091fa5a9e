"""JSON records: one per run, with what identifies it, by content, and the prediction for every row."""

import collections
import contextlib
import dataclasses
import functools
import gzip
import importlib.metadata
import json
import pathlib
import platform
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jax
from sklearn import metrics

from knnprompt_jax import errors, files, parallel
from knnprompt_jax.methods import method

FORMAT = 5
PACKED = ".jsonl.gz"
_PACKAGES = ("knnprompt_jax", "jax", "flax", "numpy", "orbax-checkpoint", "transformers")
_MAX_NAMED = 8  # Files that a message names.
_UNEVEN = 1.5  # Times its even share, from which on a class makes the classes uneven.


class NamedModel(Protocol):
    """A model by the name that it was requested by."""

    @property
    def name(self) -> str: ...


class Recordable(Protocol):
    """The attributes of a run that its record repeats: of `plan.Run`, or of the fine-tuning of a model on a split."""

    @property
    def name(self) -> str: ...
    @property
    def problem(self) -> method.Problem: ...
    @property
    def model(self) -> NamedModel: ...
    @property
    def identity(self) -> Mapping[str, Any]: ...
    @property
    def source(self) -> Mapping[str, Any]: ...
    @property
    def experiment(self) -> str: ...
    @property
    def cell(self) -> Mapping[str, Any]: ...
    @property
    def key(self) -> str: ...
    @property
    def file_name(self) -> str: ...


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Attributes:
        predicted: the predicted label of each row of `problem.evaluation`.
        prompts, truncated_prompts, lm_tokens: what the run would read if it ran alone.
        seconds: wall time of the shared pass ("language_model") and of the method itself ("method").
        prompts_per_second: the rate of the shared pass.
        note: a remark shown with the result.
        candidates: accuracies of the prompts or templates of which the best on these rows was kept.
    """

    accuracy: float
    predicted: tuple[str, ...]
    prompts: int = 0
    truncated_prompts: int = 0
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    prompts_per_second: float = 0.0
    lm_tokens: int = 0
    note: str = ""
    candidates: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record(Outcome):
    """An outcome with the run that it came from.

    Attributes:
        key: SHA-256 of all that the outcome depends on (`Run.key`), which `settings` (`Run.identity`) lists by content.
        source: the options that the rows came from.
        true: the label of each evaluation row.
        class_counts: for each label its word and the numbers of train rows, demonstrations and anchors.
        experiment, cell: the grid that the run belongs to, and its position on axes that are not fields of their own.
    """

    key: str
    file_name: str
    task: str
    model: str
    method: str
    seed: int
    shots: int
    demo_shots: int
    true: tuple[str, ...]
    settings: Mapping[str, Any]
    source: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    class_counts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    experiment: str = ""
    cell: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    environment: Mapping[str, str] = dataclasses.field(default_factory=lambda: environment())
    format: int = FORMAT

    @classmethod
    def of(cls, run: Recordable, outcome: Outcome) -> "Record":
        """Make the record of a finished run."""
        problem = run.problem
        split = problem.split
        return cls(
            key=run.key,
            file_name=run.file_name,
            task=problem.task.name,
            model=run.model.name,
            method=run.name,
            seed=split.seed,
            shots=split.shots,
            demo_shots=split.demo_shots,
            true=tuple(example.label for example in problem.evaluation),
            settings=run.identity,
            source=run.source,
            class_counts={
                label: {"word": word, **split.class_counts[label]._asdict()}
                for label, word in zip(problem.task.labels, problem.task.label_words, strict=True)
            },
            experiment=run.experiment,
            cell=run.cell,
            **{field.name: getattr(outcome, field.name) for field in dataclasses.fields(Outcome)},
        )

    @property
    def macro_f1(self) -> float:
        """The mean F1 of all classes that occur as label or prediction."""
        return float(metrics.f1_score(self.true, self.predicted, average="macro", zero_division=0))

    @property
    def most_common(self) -> float:
        """The share of the most common class in the evaluation rows."""
        return max(collections.Counter(self.true).values()) / len(self.true)

    @property
    def is_uneven(self) -> bool:
        """Whether the most common class has at least `_UNEVEN` times its even share; macro F1 is then shown."""
        return self.most_common * (len(self.class_counts) or len(set(self.true))) >= _UNEVEN


def environment() -> dict[str, str]:
    """Return the versions of libraries and the devices of this process."""
    return {**_versions(), "device": jax.devices()[0].device_kind, "devices": str(jax.device_count())}


def write(folder: pathlib.Path, record: Record) -> pathlib.Path:
    """Write the record atomically, replacing an earlier record of the same run."""
    path = folder / record.file_name
    content = {**dataclasses.asdict(record), "macro_f1": record.macro_f1}
    files.write(path, json.dumps(content, indent=1, ensure_ascii=False))
    return path


def read(path: pathlib.Path) -> Record:
    """Read a record; raises UserError if the file is not a record or has another format."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise errors.UserError(f"{path}: not a record: {error}") from None
    if not isinstance(content, dict) or "format" not in content:
        raise errors.UserError(f"{path}: not a record of knnprompt_jax")
    if content["format"] != FORMAT:
        raise errors.UserError(f"{path}: a record of format {content['format']}; this version reads format {FORMAT}")
    try:
        return _from_json(content)
    except (TypeError, ValueError, KeyError) as error:
        raise errors.UserError(f"{path}: not a record of knnprompt_jax: {error}") from None


def read_all(folder: pathlib.Path) -> list[Record]:
    """Read the records of a folder, by name, without its subfolders; or those of a packed file.

    Raises:
        UserError: there is no folder, no record in it, or a JSON file that is not a record.
    """
    if folder.name.endswith(PACKED):
        return _unpack(folder)
    if not folder.is_dir():
        raise errors.UserError(f"{folder}: no such folder of records")
    paths = sorted(folder.glob("*.json"))
    if not paths:
        names = sorted(entry.name for entry in folder.iterdir())
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        raise errors.UserError(f"{folder}: no records; it holds {', '.join(names[:_MAX_NAMED]) or 'nothing'}{more}")
    return [read(path) for path in paths]


def finished(folder: pathlib.Path, runs: Sequence[Recordable]) -> dict[str, Record]:
    """Return the records of those runs that are finished, by file name.

    A record counts if it is complete and has the key of its run. Process 0 reads the records for all processes.
    """

    def read_finished() -> dict[str, Record]:
        found = {}
        for run in runs:
            with contextlib.suppress(errors.UserError):
                record = read(folder / run.experiment / run.file_name)
                if record.key == run.key:
                    found[run.file_name] = record
        return found

    return parallel.call_in_main(read_finished)


def _from_json(content: Mapping[str, Any]) -> Record:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in content.items()
    }
    del values["macro_f1"]
    for name in ("checksum", "dropped_demonstrations", "datastore"):  # Fields of older records.
        values.pop(name, None)
    source = dict(values.get("source", {}))
    if "revision" in source:  # Older records do not have it in the model's name.
        revision = source.pop("revision")
        values["model"] = f"{values['model']}@{revision}".removesuffix("@")
        values["source"] = source
    return Record(**values)


def _unpack(path: pathlib.Path) -> list[Record]:
    records = []
    try:
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            content = json.loads(line)
            if content["format"] != FORMAT:
                raise errors.UserError(
                    f"{path}: records of format {content['format']}; this version reads format {FORMAT}"
                )
            labels = list(content["class_counts"])
            content |= {name: [labels[number] for number in content[name]] for name in ("predicted", "true")}
            records.append(_from_json(content | {"environment": {}}))
    except errors.UserError:
        raise
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, IndexError) as error:
        raise errors.UserError(f"{path}: not a file of packed records: {error}") from None
    return records


@functools.cache
def _versions() -> Mapping[str, str]:
    """Return the versions of Python and of the libraries that can change a result."""
    installed = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed
