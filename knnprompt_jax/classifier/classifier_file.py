"""The file of a classifier: safetensors, of which one tensor is a JSON document.

| tensor             | content                                                                     |
|--------------------|-----------------------------------------------------------------------------|
| hidden_8 [N, E]    | the anchors' hidden states, in the order of the rows                        |
| log_z_8 [N]        | their log-partitions                                                        |
| block_8_21 [N, D]  | the outputs of the 21st block at the last token, if experts read them       |
| tokens_8_21 [N, D] | the mean of its outputs over the tokens of a text                           |
| names [C, D]       | the mean over the tokens of the name of each class, if the pool reads means |
| terms              | the terms of the expert on words, if there is one, as lines of UTF-8        |
| terms_table        | their numbers (`words.Terms`)                                               |
| content            | the task, the options and the rows (`fitted.Content`) as JSON               |

The 8 is the number of demonstrations per class of a view; each view has such tensors. The metadata have the format
version and a digest of the tensors, so nothing else in a file needs a check. Metadata hold at most 100 MB, too little
for many rows. Reading a file runs no code in it. A file is replaced whole.
"""

import contextlib
import dataclasses
import hashlib
import json
import pathlib
import types
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

from knnprompt_jax.classifier import fit_classifier
from knnprompt_jax.classifier import fitted as fitted_lib
from knnprompt_jax.classifier.arguments import AutoOptions, PublishedOptions
from knnprompt_jax.classifier.experts import words
from knnprompt_jax.classifier.fitted import Content, Fitted
from knnprompt_jax.common import errors, files, parallel
from knnprompt_jax.inference import lm as lm_lib

FORMAT = 19
_KEY = "knnprompt_classifier"
_OPTIONS = {kind.__name__: kind for kind in (PublishedOptions, AutoOptions)}
_INVALID = (safetensors.SafetensorError, ValueError, LookupError, TypeError, RecursionError)


@dataclasses.dataclass(frozen=True, eq=False)
class Saved:
    """A classifier read from a file, whose model is not loaded.

    Attributes:
        states: the states of the anchors, by demonstrations per class.
        terms: the fitted expert on words; None if the pool has none.
        names_CD: as in `expert.Resources`.
        digest: SHA-256 of the content and the states.
    """

    path: pathlib.Path
    content: Content
    states: Mapping[int, lm_lib.States]
    terms: words.Terms | None
    names_CD: np.ndarray | None
    digest: str

    def with_prior(self, class_prior: Any) -> "Saved":
        """Return the classifier with other shares of classes, unless `class_prior` is None.

        Raises:
            UserError: the classifier has no prior, or this one does not match its labels.
        """
        if class_prior is None:
            return self
        if self.content.is_published:
            raise errors.UserError(f"--class_prior: {self.path} is KNNPrompting, whose shares of votes have no prior")
        options = dataclasses.replace(self.content.options, class_prior=class_prior)
        content = dataclasses.replace(self.content, options=options)
        fitted_lib.check_options(content)
        return dataclasses.replace(self, content=content)

    def load_model(self, mesh: lm_lib.MeshChoice) -> lm_lib.LanguageModel:
        """Return the model by the name that it had; raise UserError if it cannot be read."""
        with errors.prefixed(f"{self.path}: cannot load its model (in Python, give model=)"):
            return self.content.model.load(mesh=mesh)

    def restore(self, model: lm_lib.LanguageModel) -> Fitted:
        """Return the classifier; raise UserError unless this model, and the encoder as it is, made its states."""
        content = self.content
        made = dataclasses.asdict(content.model) | {"encoder": content.encoder}
        given = dataclasses.asdict(model.identity)
        given["encoder"] = fit_classifier.encoder_fingerprint(content.options)
        for name in ("fingerprint", "dtype", "deterministic", "context", "encoder"):
            if made[name] != given[name]:
                models = ", not ".join(f"{each['name']} with {name}={each[name]}" for each in (made, given))
                raise errors.UserError(f"{self.path}: made with another model: {models}: give that model, or fit again")
        return fitted_lib.complete(content, model, self.states, self.terms, self.names_CD)


def save(fitted: Fitted, path: pathlib.Path) -> None:
    """Write a classifier, replacing an earlier file; every process of a run calls this.

    Raises:
        UserError: the system refuses to write.
    """
    parallel.call_in_main(lambda: files.write(path, _to_bytes(fitted)))


def check_replaceable(path: pathlib.Path, overwrite: bool) -> None:
    """Raise UserError if the file exists and is no classifier, or `overwrite` is False, or it cannot be written."""
    files.check_writable(path)
    if not path.exists():
        return
    if not overwrite:
        raise errors.UserError(f"{path}: exists already; choose another file, or set --overwrite (overwrite=True)")
    with contextlib.suppress(OSError, safetensors.SafetensorError), safetensors.safe_open(path, "numpy") as file:
        if _KEY in (file.metadata() or {}):
            return
    raise errors.UserError(f"{path}: exists and is not a classifier; choose another file")


def _to_bytes(fitted: Fitted) -> bytes:
    content = fitted.content
    arrays: dict[str, np.ndarray] = {}
    for shots, states in fitted.readings.states.items():
        arrays[f"hidden_{shots}"] = np.asarray(states.hidden_NE, np.float32)
        arrays[f"log_z_{shots}"] = np.asarray(states.log_z_N, np.float32)
        for activation, activation_ND in states.activations.items():
            arrays[_array_name(activation, shots)] = np.asarray(activation_ND, np.float32)
    if fitted.names_CD is not None:
        arrays["names"] = np.asarray(fitted.names_CD, np.float32)
    if fitted.pool and fitted.pool.terms:
        arrays["terms"] = np.frombuffer("\n".join(fitted.pool.terms.terms).encode(), np.uint8)
        arrays["terms_table"] = fitted.pool.terms.table_FC
    document = dataclasses.asdict(content)
    options = document["options"]
    options["kind"] = type(content.options).__name__
    if content.prior_C is not None and not isinstance(options["class_prior"], str):
        options["class_prior"] = dict(zip(map(str, content.labels), content.prior_C.tolist(), strict=True))
    arrays["content"] = np.frombuffer(json.dumps(document, default=_to_python).encode(), np.uint8)
    return safetensors_numpy.save(arrays, {_KEY: json.dumps({"format": FORMAT, "digest": _digest(arrays)})})


def read(path: pathlib.Path) -> Saved:
    """Read a classifier without its model.

    Raises:
        UserError: there is none, it is damaged, or another version wrote it.
    """
    try:
        if path.is_dir():
            raise ValueError
        with files.refusals(path), safetensors.safe_open(path, "numpy") as file:
            note = json.loads(file.metadata()[_KEY])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if note != {"format": FORMAT, "digest": _digest(arrays)}:
            raise ValueError
        document = json.loads(arrays["content"].tobytes())
        hints = typing.get_type_hints(Content) | {"options": _OPTIONS[document["options"].pop("kind")]}
        content = Content(**{name: _decode(hint, document[name]) for name, hint in hints.items()})
        states = {}
        for view in content.views:
            shots = view.demo_shots
            kept = {activation: arrays[_array_name(activation, shots)] for activation in view.activations}
            is_deterministic = content.model.deterministic
            states[shots] = lm_lib.States(arrays[f"hidden_{shots}"], arrays[f"log_z_{shots}"], is_deterministic, kept)
        terms = None
        if "terms" in arrays:
            terms = words.Terms(arrays["terms"].tobytes().decode().split("\n"), arrays["terms_table"])
    except errors.UserError:  # The system refuses to read the file.
        raise
    except _INVALID:
        raise errors.UserError(f"{path}: not a classifier, damaged, or of another version: fit again") from None
    return Saved(path, content, states, terms, arrays.get("names"), note["digest"])


def _array_name(activation: lm_lib.Activation, demo_shots: int) -> str:
    return f"{'tokens' if activation.is_mean else 'block'}_{demo_shots}_{activation.block}"


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of the arrays."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _decode(hint: Any, value: Any) -> Any:
    """Return a value of this type from the JSON of `dataclasses.asdict`."""
    if isinstance(hint, types.UnionType) and value is not None:
        hint = typing.get_args(hint)[0]
    if value is None:
        return None
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return hint(**{name: _decode(hints[name], item) for name, item in value.items()})  # type: ignore[operator]
    if typing.get_origin(hint) is tuple:
        return tuple(_decode(typing.get_args(hint)[0], item) for item in value)
    return value


def _to_python(value: Any) -> Any:
    """Return a NumPy value as Python's, and anything else, such as a date among the ids, as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
