"""JSON records: one per run, with what identifies it, by content, and the prediction for every row."""

import collections
import contextlib
import dataclasses
import functools
import gzip
import hashlib
import importlib.metadata
import json
import pathlib
import platform
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import jax
from sklearn import metrics

from knnprompt_jax.common import errors, files, parallel
from knnprompt_jax.methods import method

FORMAT = 5
PACKED = ".jsonl.gz"
_PACKAGES = ("knnprompt_jax", "jax", "flax", "numpy", "orbax-checkpoint", "transformers")
_UNEVEN = 1.5  # Classes are uneven if the most common one has at least this many times its even share.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A run, known before any weight is loaded.

    Attributes:
        name: the name of the method in records and tables.
        model: the model, with its `name`.
        experiment: the grid of the run; "" without one.
        cell: the values on the grid's own axes, which are not fields of a record.
        source: the row options: those that chose the rows. `key` covers the rows by content instead.
    """

    name: str
    problem: method.Problem
    model: Any
    experiment: str = ""
    cell: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    source: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything that can change the outcome, as JSON values, with rows and weights by content."""
        split = self.problem.split
        digest = self.problem.digest  # Of the task and all rows.
        return {"task": digest, "shots": split.shots, "demo_shots": split.demo_shots, "seed": split.seed}

    @functools.cached_property
    def key(self) -> str:
        """SHA-256 of the identity: runs that can give different results have different keys."""
        return _sha256(self.identity)

    @functools.cached_property
    def file_name(self) -> str:
        """The name of the record's file: readable parts, then a digest of the key, the name and the grid cell."""
        digest = _sha256([self.key, self.name, self.experiment, dict(self.cell)])[:16]
        split = self.problem.split
        return (
            f"{self.problem.task.name}-{self.model.short_name}-{self.name}-m{split.shots}-d{split.demo_shots}"
            f"-seed{split.seed}-{digest}.json"
        )


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


@functools.cache
def environment() -> Mapping[str, str]:
    """Return the versions of Python and libraries, and the devices of this process."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # The package itself, in a checkout.
            found[name] = importlib.metadata.version(name)
    return {**found, "device": jax.devices()[0].device_kind, "devices": str(jax.device_count())}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """The result of a run.

    Attributes:
        predicted: the predicted label of each evaluation row.
        prompts, truncated_prompts, lm_tokens: what the run would read if no other run shared its prompts.
        seconds: wall time of the shared pass ("language_model") and of the method itself ("method").
        prompts_per_second: the rate of the shared pass.
        note: a remark shown with the result.
        candidates: accuracies of the prompts or templates of which the best on these rows was chosen.
        key: SHA-256 of all that the outcome depends on (`Run.key`), which `settings` (`Run.identity`) lists by content.
        source: the options that chose the rows.
        true: the label of each evaluation row.
        class_counts: for each label its word and the numbers of train rows, demonstrations and anchors.
        experiment, cell: the grid of the run, and its position on axes that are not fields of a record.
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
    environment: Mapping[str, str] = dataclasses.field(default_factory=environment)
    format: int = FORMAT

    @classmethod
    def of(cls, run: Run, predicted: tuple[str, ...], **outcome: Any) -> "Record":
        """Make the record of a finished run from its predictions and its other fields."""
        task = run.problem.task
        true = tuple(example.label for example in run.problem.evaluation)
        split = run.problem.split
        words = dict(zip(task.labels, task.label_words, strict=True))
        return cls(
            key=run.key,
            file_name=run.file_name,
            task=task.name,
            model=run.model.name,
            method=run.name,
            seed=split.seed,
            shots=split.shots,
            demo_shots=split.demo_shots,
            accuracy=float(metrics.accuracy_score(true, predicted)),
            predicted=predicted,
            true=true,
            settings=run.identity,
            source=run.source,
            class_counts={
                label: {"word": word, **split.class_counts[label]._asdict()} for label, word in words.items()
            },
            experiment=run.experiment,
            cell=run.cell,
            **outcome,
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


def write(folder: pathlib.Path, record: Record) -> pathlib.Path:
    """Write the record atomically, replacing an earlier record of the same run."""
    path = folder / record.file_name
    content = {**dataclasses.asdict(record), "macro_f1": record.macro_f1}
    files.write(path, json.dumps(content, indent=1, ensure_ascii=False))
    return path


def read_all(path: pathlib.Path) -> list[Record]:
    """Read the records of a folder, by name, without its subfolders; or those of a packed file, or of one file.

    Raises:
        UserError: there is no such file or folder, or a JSON file that is not a record of this version.
    """
    paths = sorted(path.glob("*.json")) if path.is_dir() else [path]
    return [record for each in paths for record in _read(each)]


def finished(folder: pathlib.Path, runs: Iterable[Run]) -> dict[str, Record]:
    """Return the records of finished runs by file name, which has the digest of a run's key.

    Process 0 reads them for all processes.

    Raises:
        UserError: a damaged record.
    """
    paths = [folder / run.experiment / run.file_name for run in runs]
    return parallel.call_in_main(
        lambda: {path.name: record for path in paths if path.exists() for record in _read(path)}
    )


def _read(path: pathlib.Path) -> list[Record]:
    """Return the record in a JSON file, or the records in a packed file."""
    try:
        if path.name.endswith(PACKED):
            lines = gzip.decompress(path.read_bytes()).decode().splitlines()
            return [_from_json(json.loads(line), is_packed=True) for line in lines]
        return [_from_json(json.loads(path.read_text(encoding="utf-8")))]
    except (OSError, EOFError, zlib.error, ValueError, RecursionError, KeyError, TypeError, IndexError) as error:
        problem = errors.one_line(error)
        raise errors.UserError(f"{path}: not a record of knnprompt_jax with format {FORMAT}: {problem}") from None


def _from_json(content: dict[str, Any], is_packed: bool = False) -> Record:
    if content["format"] != FORMAT:
        raise ValueError(f"it has format {content['format']}")
    del content["macro_f1"]
    if is_packed:  # Its labels are class indices.
        labels = list(content["class_counts"])
        content |= {name: [labels[number] for number in content[name]] for name in ("predicted", "true")}
        content["environment"] = {}
    content |= {name: tuple(value) for name, value in content.items() if isinstance(value, list)}
    return Record(**content)
