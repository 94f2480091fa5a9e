"""Saved folders of classifiers.

A folder holds the task, the options and the rows as JSON; the store's arrays; the anchors' states, so that fitting another rule needs
no pass; and a manifest with a checksum of every file. A folder is whole or absent, and nothing in it is code.
"""

import collections
import contextlib
import dataclasses
import functools
import json
import pathlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh

from knnprompt_jax import errors, files, parallel
from knnprompt_jax import lm as lm_lib
from knnprompt_jax import options as options_lib
from knnprompt_jax.classifier import choosing, inputs
from knnprompt_jax.prompts import layout
from knnprompt_jax.settings import stores
from knnprompt_jax.settings.shared import CLASSIFIER, MANIFEST
from knnprompt_jax.store import manifest as manifest_lib
from knnprompt_jax.store import storage
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks import sources, splits
from knnprompt_jax.tasks.task import Example, Task

if TYPE_CHECKING:
    from knnprompt_jax.classifier.base import Classifier

ROWS, STATES = "rows.jsonl", "states"
_ARRAYS = ("hidden_NE.npy", "log_z_N.npy")
_LAYER = "layer_{}_ND.npy"


@dataclasses.dataclass(frozen=True)
class Content:
    """The parts of a classifier apart from its model, store and states.

    Attributes:
      kind: the name of its class.
      labels: the labels as in y, in class order.
      num_rows: the number of rows given so far.
      source: the encoding and label column of the file that the rows came from, if it was one.
    """

    kind: str
    task: Task
    parameters: Mapping[str, Any]
    labels: Sequence[Any]
    num_rows: int
    demonstrations: tuple[Example, ...]
    anchors: tuple[Example, ...]
    choice: choosing.Choice | None = None
    source: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls, classifier: "Classifier", demonstrations: Sequence[Example], anchors: Iterable[Example], num_rows: int
    ) -> "Content":
        """Return the content of a classifier with these anchors."""
        return cls(
            type(classifier).__name__,
            classifier.task,
            {name: getattr(classifier, name) for name in classifier.option_names()},
            getattr(classifier, "labels_", np.array(classifier.task.labels)).tolist(),
            num_rows,
            tuple(demonstrations),
            tuple(anchors),
            getattr(classifier, "choice_", None),
            classifier.source_,
        )

    @classmethod
    def read(cls, folder: pathlib.Path) -> "Content":
        """Read the two files of a folder; raises many kinds of exceptions if they are invalid."""
        described = json.loads((folder / CLASSIFIER).read_text(encoding="utf-8"))
        declared: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in described["task"].items()
        }
        task, rows = Task(**declared), []
        with (folder / ROWS).open(encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                place = f"row {row['id']}"
                label, fields = (
                    sources.label_of(task, place, row["label"]),
                    sources.fields_of(task, place, row["fields"]),
                )
                other, content = dict(row.get("other", {})), str(row.get("content", ""))
                rows.append(Example(fields, label, int(row["id"]), place, other, content))
        labels, num_rows, count = (described[name] for name in ("labels", "num_rows", "num_demonstrations"))
        if [str(label) for label in labels] != list(task.labels):
            raise ValueError("the labels are not the task's")
        if not isinstance(num_rows, int) or any(row.row >= num_rows for row in rows):
            raise ValueError(f"num_rows={num_rows!r}")
        choice = choosing.Choice.from_dict(described["choice"])
        source = {name: str(value) for name, value in described.get("source", {}).items()}
        kept = (tuple(rows[:count]), tuple(rows[count:]), choice, source)
        return cls(described["class"], task, described["parameters"], labels, num_rows, *kept)

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
        }
        rows = []
        for example in (*self.demonstrations, *self.anchors):
            row = {"id": example.row, "label": example.label, "fields": dict(example.fields)}
            more = {"other": example.ids, "content": example.content}
            rows.append(row | {name: value for name, value in more.items() if value})
        lines = "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
        lines = lines.encode("utf-8", "backslashreplace").decode()  # Ids may hold lone surrogates.
        text = json.dumps(described, indent=1, ensure_ascii=False, default=_plain)
        return {CLASSIFIER: text, ROWS: lines}

    def is_same(self, other: "Content") -> bool:
        """Return whether both have the same files, apart from what is chosen."""
        first, second = (dataclasses.replace(content, choice=None) for content in (self, other))
        return first.files() == second.files()


@dataclasses.dataclass(frozen=True)
class Saved:
    """A classifier in a folder, every file checked."""

    folder: pathlib.Path
    content: Content
    manifest: manifest_lib.Manifest

    def classifier(self, kind: Any, model: lm_lib.LanguageModel, options: stores.StoreOptions | None = None) -> Any:
        """Return the classifier, of this class; `options` replace its store's placement and memory.

        Raises:
          UserError: its options are not those of the class; the model is not that of the anchors; the arrays are not the rows'.
        """
        content, names = self.content, kind.option_names()
        if set(content.parameters) != set(names):
            raise errors.UserError(f"{self.folder}: its options are not {', '.join(names)}")
        classifier = kind(model, content.task, **{**content.parameters, "store_options": self.store_options})
        self.check(model.identity, content.task, classifier.label_ids())
        classifier.source_ = content.source
        rows = content.demonstrations, content.anchors, content.choice, content.num_rows, np.array(content.labels)
        return classifier.use_store(self.load(model, options), *rows, self.states(model))

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the whole folder: that of its manifest, which has a checksum of every other file."""
        return manifest_lib.file_hash(self.folder / MANIFEST)

    @property
    def store_options(self) -> stores.StoreOptions:
        """The options that the store was built with; raises UserError on an invalid value."""
        return options_lib.from_config(stores.StoreOptions, self.content.parameters["store_options"])

    @property
    def split(self) -> splits.FewShotSplit:
        """The demonstrations and anchors as a draw, with the seed of the demonstrations."""
        content = self.content
        demonstrations, anchors = (
            collections.Counter(row.label for row in rows) for rows in (content.demonstrations, content.anchors)
        )
        counts = {label: splits.ClassCounts(0, demonstrations[label], anchors[label]) for label in content.task.labels}
        demo_shots, seed = max(demonstrations.values(), default=0), int(content.parameters["random_state"])
        shots = demo_shots + max(anchors.values())
        return splits.FewShotSplit(content.demonstrations, content.anchors, seed, shots, demo_shots, counts, ())

    def check(
        self,
        model: tuple[str, str, Any, str, bool],
        task: Task | None = None,
        label_ids: Sequence[int] | None = None,
        **given: str,
    ) -> None:
        """Raise UserError unless this model made the anchors, with the given task, label tokens and options of prompts.

        Args:
          model: as `LanguageModel.identity`.
          given: `truncation` and `label_token`.
        """
        content, provenance = self.content, self.manifest.provenance
        label_ids = provenance.label_ids if label_ids is None else label_ids
        provenance.check(_provenance(content, model, task or content.task, label_ids, **given), self.folder)

    def load_model(self, mesh: Mesh | None) -> lm_lib.LanguageModel:
        """Load the model by the name that it had."""
        provenance = self.manifest.provenance
        try:
            return lm_lib.LanguageModel.from_pretrained(
                provenance.model, dtype=provenance.dtype, mesh=mesh, deterministic=provenance.deterministic
            )
        except errors.UserError as error:
            raise errors.UserError(f"{self.folder}: cannot load its model; give it as model=: {error}") from None

    def load(self, model: lm_lib.LanguageModel, options: stores.StoreOptions | None = None) -> store_lib.Store:
        """Load the store to the model's devices; `options` replace its placement and memory.

        Raises:
          UserError: the arrays cannot be read, or the anchors are not those of the rows.
        """
        mesh = model.mesh if model.mesh.size > 1 else None
        try:
            store = storage.load(self.folder, self.manifest, model.head, mesh, options or self.store_options)
        except Exception as error:  # The checksums fit, but another process replaced the folder, or someone forged it.
            raise errors.UserError(f"{self.folder}: cannot read its arrays: {_one_line(error)}") from None
        anchors = self.content.anchors
        ids, classes = [example.row for example in anchors], inputs.classes_of(self.content.task, anchors)
        if not (np.array_equal(store.ids_N, ids) and np.array_equal(store.labels_N, classes)):
            raise errors.UserError(f"{self.folder}: the anchors of its arrays are not those of {ROWS}")
        return store

    def states(self, model: lm_lib.LanguageModel) -> lm_lib.States:
        """Return the states of the anchors' prompts, in the order of the rows, mapped from disk."""
        layers = self.content.choice.rule.layers if self.content.choice else ()
        names = [*_ARRAYS, *map(_LAYER.format, layers)]
        try:
            arrays = [np.load(self.folder / STATES / name, mmap_mode="r", allow_pickle=False) for name in names]
        except (OSError, ValueError, EOFError) as error:
            raise errors.UserError(f"{self.folder}: cannot read its states: {_one_line(error)}") from None
        count = len(self.content.anchors)
        shapes = [(count, model.config.state_width), (count,), *[(count, model.config.width)] * len(layers)]
        if [array.shape for array in arrays] != shapes:
            raise errors.UserError(f"{self.folder}: its states are not those of its {count} anchors")
        hidden_NE, log_z_N, *of_layers = arrays
        return lm_lib.States(hidden_NE, log_z_N, model.deterministic, dict(zip(layers, of_layers, strict=True)))


def lock(folder: pathlib.Path) -> contextlib.AbstractContextManager[None]:
    """Hold a folder while its new content is made, or raise UserError; every process of a run calls this."""
    return parallel.by_main(files.lock(absolute(folder)))


def save(classifier: "Classifier", folder: pathlib.Path, overwrite: bool) -> None:
    """Write a fitted classifier into a folder that the caller has locked; every process of a run calls this.

    Raises:
      UserError: the folder exists and `overwrite` is False, or the system refuses to write.
    """
    folder = absolute(folder)
    if recover(folder) and not overwrite:
        raise errors.UserError(f"{folder}: exists already; choose another folder, or overwrite it")
    anchors, arrays = classifier.anchors_.values(), storage.arrays_of(classifier.store_)
    content = Content.of(classifier, classifier.demonstrations_, anchors, classifier.num_rows_)
    parallel.call_in_main(functools.partial(_begin, folder, content, classifier.kept_states()))
    with files.refusals(folder):
        storage.write(files.draft(folder), arrays)
    parallel.call_in_main(functools.partial(_finish, folder, classifier, content, arrays))


def read(folder: pathlib.Path) -> Saved:
    """Read a saved classifier without its model and arrays, and check every file.

    Raises:
      UserError: there is none, a file is missing or altered, another version wrote it, or process 0 reads another one.
    """
    folder = absolute(folder)
    parallel.call_in_main(functools.partial(_recover_for_readers, folder))
    manifest = manifest_lib.read(folder)
    manifest_lib.check_files(folder, manifest)
    try:
        saved = Saved(folder, Content.read(folder), manifest)
    except errors.UserError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise errors.UserError(
            f"{folder}: not a saved classifier: {type(error).__name__}: {_one_line(error)}"
        ) from None
    if parallel.call_in_main(lambda: saved.digest) != saved.digest:
        raise errors.UserError(f"{folder}: not the classifier of process 0: give every process the same folder")
    return saved


def recover(folder: pathlib.Path) -> bool:
    """Restore a folder that a dying process left behind, which the caller has locked; return whether it has any files.

    Raises:
      UserError: the folder has other files than a classifier's, which must not be replaced.
    """
    parallel.call_in_main(functools.partial(files.recover, folder))
    if not folder.exists() or folder.is_dir() and not any(folder.iterdir()):
        return False
    if not any((folder / name).exists() for name in (MANIFEST, CLASSIFIER)):
        raise errors.UserError(f"{folder}: exists and is not a saved classifier; choose another folder")
    return True


def absolute(folder: pathlib.Path) -> pathlib.Path:
    """Return the folder itself, so that a link to it stays one; raise UserError if it is a link to nothing."""
    folder = folder.expanduser()
    place = files.real(folder)
    if folder.is_symlink() and not (place.exists() or files.replaced(place).exists()):
        raise errors.UserError(f"{folder}: a link to {place}, which does not exist")
    return place


def reduce(classifier: "Classifier") -> tuple[Any, ...]:
    """Return what `pickle` keeps of a fitted classifier: its class, its model's name and the files of a saved folder."""
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place, "classifier")
        with lock(folder):
            save(classifier, folder, overwrite=False)
        content = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return _restore, (type(classifier), classifier.model, content)


def _restore(kind: type, model: lm_lib.LanguageModel, content: dict[str, bytes]) -> Any:
    """Return the classifier of these files."""
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place, "classifier")
        for name, data in content.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return read(folder).classifier(kind, model)


def _recover_for_readers(folder: pathlib.Path) -> None:
    """Do as `recover` without the caller's lock, and only if a process has died."""
    if not folder.exists() and files.replaced(folder).exists():
        with files.lock(folder):
            files.recover(folder)


def _begin(folder: pathlib.Path, content: Content, states: lm_lib.States) -> None:
    """Begin a draft of the folder with the JSON files and the states."""
    draft = files.begin_folder(folder)
    with files.refusals(folder):
        for name, text in content.files().items():
            (draft / name).write_text(text, encoding="utf-8")
        (draft / STATES).mkdir()
        for name, array_N in zip([*_ARRAYS, *map(_LAYER.format, states.layers)], jax.tree.leaves(states), strict=True):
            with (draft / STATES / name).open("wb") as file:  # `np.save` would lose the system's reason for a refusal.
                np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array_N))
                file.write(np.ascontiguousarray(array_N).data)


def _finish(folder: pathlib.Path, classifier: "Classifier", content: Content, arrays: Mapping[str, Any]) -> None:
    """Write the manifest of the draft and put it at the folder's path."""
    draft, codec = files.draft(folder), classifier.store_.codec
    counts = np.bincount(arrays["labels"], minlength=content.task.num_classes).tolist()
    with files.refusals(folder):
        written = manifest_lib.Manifest(
            provenance=_provenance(content, classifier.model.identity, content.task, codec.label_ids),
            kind=codec.kind,
            options=codec.options,
            class_counts=dict(zip(content.task.labels, counts, strict=True)),
            arrays=arrays,
            files=manifest_lib.checksums(draft),
        )
        manifest_lib.write(draft, written)
    files.finish_folder(folder)


def _provenance(
    content: Content, model: tuple[str, str, Any, str, bool], task: Task, label_ids: Sequence[int], **given: str
) -> manifest_lib.Provenance:
    """Return what makes anchors of a classifier's rows by this model and task; `given` replaces options of prompts."""
    name, fingerprint, _, dtype, deterministic = model
    of_prompts = {option: content.parameters[option] for option in ("truncation", "label_token")} | given
    return manifest_lib.Provenance(
        model=name,
        fingerprint=fingerprint,
        dtype=dtype,
        deterministic=deterministic,
        task=task.name,
        template=task.template,
        labels=task.labels,
        label_words=task.label_words,
        label_ids=tuple(label_ids),
        demonstrations=manifest_lib.text_hash(layout.demonstration_text(content.task, content.demonstrations)),
        num_demonstrations=len(content.demonstrations),
        **of_prompts,
    )


def _plain(value: Any) -> Any:
    """Convert to what JSON can write: NumPy's values to Python's, options to dictionaries."""
    return value.to_dict() if isinstance(value, options_lib.Options) else value.tolist()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
