"""Classifiers in folders: as JSON the task, the options, the demonstrations and the anchors' rows; the store's arrays; the anchors'
states, so that nothing that is fitted again needs a pass of the model; and a manifest with a checksum of every file, against which
everything is checked.

Such a folder is whole or not there, and nothing in it is code.
"""

import collections
import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh

from knnprompt_jax import errors, files, parallel
from knnprompt_jax import lm as lm_lib
from knnprompt_jax import options as options_lib
from knnprompt_jax.classifier import contents, core, inputs
from knnprompt_jax.classifier.core import Classifier
from knnprompt_jax.prompts import layout
from knnprompt_jax.store import manifest as manifest_lib
from knnprompt_jax.store import storage
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Task

STATES = "states"
C = TypeVar("C", bound=Classifier)
_ARRAYS = ("hidden_NE.npy", "log_z_N.npy")


@dataclasses.dataclass(frozen=True)
class Saved:
    """A classifier in a folder, checked whole."""

    folder: pathlib.Path
    content: contents.Content
    manifest: manifest_lib.Manifest

    def classifier(
        self, kind: type[C], model: lm_lib.LanguageModel, options: store_lib.StoreOptions | None = None
    ) -> C:
        """The classifier, of this class; its store's placement and memory are those of the options, or as it was made.

        Raises:
          UserError: it has other options than the class; the model is another than the anchors'; arrays that are not its rows'.
        """
        content = self.content
        if set(content.parameters) != set(core.PARAMETERS):
            raise errors.UserError(f"{self.folder}: has other options than {', '.join(sorted(core.PARAMETERS))}")
        made = kind(model, content.task, **{**content.parameters, "store_options": self.store_options})
        made.check()
        self.check(model.identity, content.task, made.label_ids())
        kept = (content.demonstrations, content.anchors, np.array(content.labels), content.num_rows)
        return made.use_store(self.load(model, options), *kept, self.states(model), content.choice)

    @property
    def digest(self) -> str:
        """SHA-256 of the whole folder: that of its manifest, which has a checksum of every other file."""
        return manifest_lib.file_hash(self.folder / manifest_lib.FILE)

    @property
    def store_options(self) -> store_lib.StoreOptions:
        """How the store was made; raises UserError on a value outside its choices."""
        return options_lib.from_config(store_lib.StoreOptions, self.content.parameters["store_options"])

    @property
    def split(self) -> splits.FewShotSplit:
        """The demonstrations and anchors as a draw, whose seed is that of the demonstrations."""
        content = self.content
        shown, kept = (
            collections.Counter(row.label for row in rows) for rows in (content.demonstrations, content.anchors)
        )
        counts = {label: splits.ClassCounts(0, shown[label], kept[label]) for label in content.task.labels}
        demo_shots, seed = max(shown.values(), default=0), int(content.parameters["random_state"])
        shots = demo_shots + max(kept.values())
        return splits.FewShotSplit(content.demonstrations, content.anchors, seed, shots, demo_shots, counts, ())

    def check(self, model: tuple[str, str, Any, str, bool], task: Task, label_ids: Sequence[int], **asked: str) -> None:
        """Raises UserError unless this model and task made the anchors, and with the `truncation` and `label_token` asked for.

        `model` is as `LanguageModel.identity`.
        """
        expected = _provenance(self.content, model, task, label_ids, **asked)
        self.manifest.provenance.check(expected, self.folder)

    def load_model(self, mesh: Mesh | None) -> lm_lib.LanguageModel:
        """The model by the name that it had; raises UserError with the way out where it cannot be loaded."""
        made_by = self.manifest.provenance
        try:
            return lm_lib.LanguageModel.from_pretrained(
                made_by.model, dtype=made_by.dtype, mesh=mesh, deterministic=made_by.deterministic
            )
        except errors.UserError as error:
            raise errors.UserError(f"{self.folder}: its model cannot be loaded; give it as lm=: {error}") from None

    def load(self, model: lm_lib.LanguageModel, options: store_lib.StoreOptions | None = None) -> store_lib.Store:
        """The store on the model's devices; raises UserError where its anchors are not those of the rows.

        Placement and memory are those of the options, or as it was made.
        """
        mesh = model.mesh if model.mesh.size > 1 else None
        try:
            store = storage.load(self.folder, self.manifest, model.head, mesh, options or self.store_options)
        except (
            Exception
        ) as error:  # Of many kinds: the sums did fit, but another process has replaced it, or forged it.
            raise errors.UserError(f"{self.folder}: its arrays cannot be read: {_one_line(error)}") from None
        anchors = self.content.anchors
        ids, classes = [example.row for example in anchors], inputs.classes_of(self.content.task, anchors)
        if not (np.array_equal(store.ids_N, ids) and np.array_equal(store.labels_N, classes)):
            raise errors.UserError(f"{self.folder}: the anchors of its arrays are not those of {contents.ROWS}")
        return store

    def states(self, model: lm_lib.LanguageModel) -> lm_lib.States:
        """What the model said of the anchors' prompts, row for row; read from the disk where it is used."""
        try:
            arrays = [np.load(self.folder / STATES / name, mmap_mode="r", allow_pickle=False) for name in _ARRAYS]
        except (OSError, ValueError, EOFError) as error:
            raise errors.UserError(f"{self.folder}: its states cannot be read: {_one_line(error)}") from None
        count = len(self.content.anchors)
        if [array.shape for array in arrays] != [(count, model.config.state_width), (count,)]:
            raise errors.UserError(f"{self.folder}: its states are not those of its {count} anchors")
        return dataclasses.replace(lm_lib.States(*arrays), deterministic=model.deterministic)  # type: ignore[type-var]


def lock(folder: pathlib.Path) -> contextlib.AbstractContextManager[None]:
    """Holds a folder while what will be saved there is made, or raises UserError; every process of a run calls this."""
    return parallel.by_main(files.lock(absolute(folder)))


def save(classifier: Classifier, folder: pathlib.Path, overwrite: bool) -> None:
    """Writes a fitted classifier into a folder, which the caller has locked; every process of a run calls this.

    Raises:
        UserError: the folder exists already and is not to be overwritten, or the system refuses to write.
    """
    folder = absolute(folder)
    if recovered(folder) and not overwrite:
        raise errors.UserError(f"{folder}: exists already; choose another folder, or overwrite it")
    content, arrays = contents.of(classifier), storage.arrays_of(classifier.store_)
    parallel.call_in_main(functools.partial(_begin, folder, content, classifier.kept_states()))
    with files.refusals(folder):
        storage.write(files.draft(folder), arrays)
    parallel.call_in_main(functools.partial(_finish, folder, classifier, content, arrays))


def read(folder: pathlib.Path) -> Saved:
    """The classifier in a folder, without its model and arrays; every file is checked.

    Raises:
        UserError: there is none in the folder, a file of it is missing or altered, or another version wrote it.
    """
    folder = absolute(folder)
    parallel.call_in_main(functools.partial(_recover_for_readers, folder))
    if (folder / "store" / manifest_lib.FILE).is_file():
        raise errors.UserError(f"{folder}: a classifier of an earlier version: {manifest_lib.REBUILD}")
    manifest = manifest_lib.read(folder)
    manifest_lib.check_files(folder, manifest)
    try:
        return Saved(folder, contents.read(folder), manifest)
    except errors.UserError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise errors.UserError(
            f"{folder}: not a saved classifier: {type(error).__name__}: {_one_line(error)}"
        ) from None


def recovered(folder: pathlib.Path) -> bool:
    """Whether there is something at `folder`, once what a dying process left there is put right; the caller has locked it."""
    parallel.call_in_main(functools.partial(files.recover, folder))
    return folder.exists()


def absolute(folder: pathlib.Path) -> pathlib.Path:
    """The folder itself, so that a link to it stays one; raises UserError where there cannot be a folder, or a link leads nowhere."""
    folder = folder.expanduser()
    place = files.real(folder)
    if folder.is_symlink() and not (place.exists() or files.replaced(place).exists()):
        raise errors.UserError(f"{folder}: a link to {place}, which is not there")
    return place


def _recover_for_readers(folder: pathlib.Path) -> None:
    """As `recovered`, where nothing is locked and nothing is to be written unless a process has died."""
    if not folder.exists() and files.replaced(folder).exists():
        with files.lock(folder):
            files.recover(folder)


def _begin(folder: pathlib.Path, content: contents.Content, states: lm_lib.States) -> None:
    """A draft of the folder with all that is JSON, and the states."""
    draft = files.begin_folder(folder)
    with files.refusals(folder):
        contents.write(draft, content)
        (draft / STATES).mkdir()
        for name, array in zip(_ARRAYS, jax.tree.leaves(states), strict=True):
            _write_array(draft / STATES / name, array)


def _write_array(path: pathlib.Path, array_N: np.ndarray) -> None:
    """Writes NumPy's format; where the system refuses, its reason stays known, which `np.save` forgets."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array_N))
        file.write(np.ascontiguousarray(array_N).data)


def _finish(folder: pathlib.Path, classifier: Classifier, content: contents.Content, arrays: Mapping[str, Any]) -> None:
    """Describes all files of the draft and puts it in the folder's place."""
    draft, codec = files.draft(folder), classifier.store_.codec
    counts = np.bincount(arrays["labels"], minlength=content.task.num_classes).tolist()
    with files.refusals(folder):
        written = manifest_lib.Manifest(
            provenance=_provenance(content, classifier.lm.identity, content.task, codec.label_ids),
            kind=codec.kind,
            options=codec.options,
            class_counts=dict(zip(content.task.labels, counts, strict=True)),
            arrays=arrays,
            files=manifest_lib.checksums(draft),
        )
        manifest_lib.write(draft, written)
    files.finish_folder(folder)


def _provenance(
    content: contents.Content,
    model: tuple[str, str, Any, str, bool],
    task: Task,
    label_ids: Sequence[int],
    **asked: str,
) -> manifest_lib.Provenance:
    """What this model makes anchors of with the demonstrations, as they stand there, and prompts of this task.

    `asked` may have another `truncation` and `label_token` than the classifier.
    """
    name, fingerprint, tokenizer, dtype, deterministic = model
    of_prompts = {option: content.parameters[option] for option in ("truncation", "label_token")} | asked
    return manifest_lib.Provenance(
        model=name,
        fingerprint=fingerprint,
        tokenizer=manifest_lib.tokenizer_hash(tokenizer),
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


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
