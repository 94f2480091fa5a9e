"""Saved folders of classifiers.

A folder holds the task, the options and the rows as JSON; the anchors' states, from which loading builds the store; and a manifest with a
checksum of every file. A save is atomic, and no file contains code.
"""

import collections
import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax.sharding import Mesh

from knnprompt_jax import errors, files, parallel
from knnprompt_jax import lm as lm_lib
from knnprompt_jax import options as options_lib
from knnprompt_jax.classifier import inputs
from knnprompt_jax.classifier.content import Content
from knnprompt_jax.files import CLASSIFIER, MANIFEST
from knnprompt_jax.settings import stores
from knnprompt_jax.store import manifest as manifest_lib
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Task

if TYPE_CHECKING:
    from knnprompt_jax.classifier.base import Classifier

STATES = "states"
_ARRAYS = ("hidden_NE.npy", "log_z_N.npy")
_LAYER = "layer_{}_ND.npy"


@dataclasses.dataclass(frozen=True)
class Saved:
    """A classifier in a folder, every file checked.

    Attributes:
      digest: SHA-256 (hex) of the whole folder: that of its manifest, which has a checksum of every other file.
    """

    folder: pathlib.Path
    content: Content
    manifest: manifest_lib.Manifest
    digest: str

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
        model: lm_lib.Identity,
        task: Task | None = None,
        label_ids: Sequence[int] | None = None,
        **prompt_options: str,
    ) -> None:
        """Raise UserError unless this model made the anchors, with the given task, label tokens and options of prompts.

        The arguments are those of `Content.provenance`.
        """
        content, provenance = self.content, self.manifest.provenance
        label_ids = provenance.label_ids if label_ids is None else label_ids
        expected = content.provenance(model, task or content.task, label_ids, **prompt_options)
        provenance.check(expected, self.folder)

    def load_model(self, mesh: Mesh | None) -> lm_lib.LanguageModel:
        """Load the model by the name that it had."""
        provenance = self.manifest.provenance
        try:
            return lm_lib.LanguageModel.from_pretrained(
                provenance.model,
                provenance.dtype,
                mesh=mesh,
                deterministic=provenance.deterministic,
                context=provenance.context,
            )
        except errors.UserError as error:
            raise errors.UserError(f"{self.folder}: cannot load its model (in Python, give model=): {error}") from None

    def load_store(self, model: lm_lib.LanguageModel, options: stores.StoreOptions) -> store_lib.Store:
        """Build a store of the anchors on the model's devices; raise UserError as `states`."""
        states, anchors, choice = self.states(model).with_layers(()), self.content.anchors, self.content.choice
        assert choice  # `Content.read` refuses a folder without one.
        return store_lib.build(
            options,
            choice.rule.distance,
            model.head,
            states if options.on_host else parallel.put_rows(states, model.mesh),
            inputs.classes_of(self.content.task, anchors),
            self.manifest.provenance.label_ids,
            ids=[example.row for example in anchors],
        )

    def states(self, model: lm_lib.LanguageModel) -> lm_lib.States:
        """Return the states of the anchors' prompts, in the order of the rows, mapped from disk.

        Raises:
          UserError: the states cannot be read or do not match the rows, or another process has replaced the folder.
        """
        layers = self.content.choice.rule.layers if self.content.choice else ()
        names = [*_ARRAYS, *map(_LAYER.format, layers)]
        try:
            arrays = [np.load(self.folder / STATES / name, mmap_mode="r", allow_pickle=False) for name in names]
        except (OSError, ValueError, EOFError, OverflowError) as error:
            raise errors.UserError(f"{self.folder}: cannot read its states: {errors.one_line(error)}") from None
        count = len(self.content.anchors)
        shapes = [(count, model.config.state_width), (count,), *[(count, model.config.width)] * len(layers)]
        if [array.shape for array in arrays] != shapes:
            raise errors.UserError(f"{self.folder}: the saved states do not match its {count} anchors")
        if _digest(self.folder) != self.digest:
            raise errors.UserError(f"{self.folder}: another process replaced it: rerun the command")
        hidden_NE, log_z_N, *layers_ND = arrays
        return lm_lib.States(hidden_NE, log_z_N, model.deterministic, dict(zip(layers, layers_ND, strict=True)))


def lock(folder: pathlib.Path) -> contextlib.AbstractContextManager[None]:
    """Hold a folder while its new content is made, or raise UserError; every process of a run calls this."""
    return parallel.enter_in_main(files.lock(absolute(folder)))


def save(classifier: "Classifier", folder: pathlib.Path, overwrite: bool) -> None:
    """Write a fitted classifier into a folder that the caller has locked; every process of a run calls this.

    Raises:
      UserError: the folder exists and `overwrite` is False, or the system refuses to write.
    """
    folder = absolute(folder)
    if recover(folder) and not overwrite:
        raise errors.UserError(f"{folder}: exists already; choose another folder, or give overwrite=True")
    content = Content.of(classifier, classifier.demonstrations_, classifier.anchors_.values(), classifier.num_rows_)
    provenance = content.provenance(classifier.model.identity, content.task, classifier.store_.codec.label_ids)
    parallel.call_in_main(functools.partial(_write, folder, content, classifier.host_states(), provenance))


def read(folder: pathlib.Path) -> Saved:
    """Read a saved classifier without its model and states, and check every file.

    Raises:
      UserError: there is none, a file is missing or altered, another version wrote it, or process 0 reads another one.
    """
    folder = absolute(folder)
    parallel.call_in_main(functools.partial(_recover_for_readers, folder))
    digest = _digest(folder)
    manifest = manifest_lib.read(folder)
    manifest_lib.check_files(folder, manifest)
    try:
        saved = Saved(folder, Content.read(folder), manifest, digest)
    except errors.UserError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise errors.UserError(
            f"{folder}: not a saved classifier: {type(error).__name__}: {errors.one_line(error)}"
        ) from None
    if parallel.call_in_main(lambda: digest) != digest:
        raise errors.UserError(f"{folder}: not the classifier of process 0: give every process the same folder")
    return saved


def recover(folder: pathlib.Path) -> bool:
    """Restore the folder if a process died while replacing it; return whether it has files. The caller has locked it.

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
    """Return the folder's path with links resolved, so that saving keeps a link; raise UserError on a broken link."""
    folder = folder.expanduser()
    place = files.real(folder)
    if folder.is_symlink() and not (place.exists() or files.replaced(place).exists()):
        raise errors.UserError(f"{folder}: a link to {place}, which does not exist")
    return place


def _recover_for_readers(folder: pathlib.Path) -> None:
    """Restore a folder that an interrupted save moved away, taking the lock itself."""
    if not folder.exists() and files.replaced(folder).exists():
        with files.lock(folder):
            files.recover(folder)


def _digest(folder: pathlib.Path) -> str:
    """Return the SHA-256 of the manifest, or an empty text if it cannot be read."""
    try:
        return manifest_lib.file_hash(folder / MANIFEST)
    except OSError:
        return ""


def _write(folder: pathlib.Path, content: Content, states: lm_lib.States, provenance: manifest_lib.Provenance) -> None:
    """Write a draft of the folder and put it at the folder's path."""
    draft = files.begin_folder(folder)
    with files.refusals(folder):
        for name, text in content.files().items():
            (draft / name).write_text(text, encoding="utf-8")
        (draft / STATES).mkdir()
        for name, array_N in zip([*_ARRAYS, *map(_LAYER.format, states.layers)], jax.tree.leaves(states), strict=True):
            with (draft / STATES / name).open("wb") as file:  # `np.save` would lose the system's reason for a refusal.
                array_N = np.ascontiguousarray(array_N)
                np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array_N))
                file.write(array_N.data)
        manifest_lib.write(draft, manifest_lib.Manifest(provenance, manifest_lib.checksums(draft)))
    files.finish_folder(folder)
