"""The file of a classifier: a zip archive, not compressed, of JSON and `.npy` arrays.

| member           | content                                                           |
|------------------|-------------------------------------------------------------------|
| classifier.json  | task, options, rows, experts and the model's identity (`content`) |
| hidden_8_NE.npy  | the anchors' hidden states, in the order of the rows              |
| log_z_8_N.npy    | their log-partitions                                              |
| layer_8_ND.npy   | the outputs of the block that experts read, if any does           |
| terms.txt        | the terms of the expert on words, if there is one, one per line   |
| terms_FC.npy     | its table                                                         |

The 8 is the number of demonstrations per class of a view; each view has such members.

A file is replaced whole. Reading one runs no code and trusts nothing in it.
"""

import contextlib
import dataclasses
import functools
import hashlib
import io
import math
import pathlib
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from jax.sharding import Mesh

from knnprompt_jax import errors, files, parallel
from knnprompt_jax import lm as lm_lib
from knnprompt_jax.classifier import content as content_lib
from knnprompt_jax.classifier import fitted as fitted_lib
from knnprompt_jax.classifier import fitting, inputs
from knnprompt_jax.classifier.content import Content
from knnprompt_jax.classifier.fitted import Fitted
from knnprompt_jax.experts import words
from knnprompt_jax.experts.expert import Words

_CONTENT = "classifier.json"
_HIDDEN = "hidden_{}_NE.npy"
_LOG_Z = "log_z_{}_N.npy"
_BLOCK_OUTPUT = "layer_{}_ND.npy"
_TERMS = "terms.txt"
_TABLE = "terms_FC.npy"
_START = b"PK\x03\x04"  # The first bytes of a classifier's file, a zip archive.
_END = b"PK\x05\x06"
_END_BYTES = 22  # The size of the last record of an archive without a comment.
_HEADER_START = 10  # Bytes of a .npy file before its header: the format, its version and the header's length.
_INVALID = (
    *(ValueError, TypeError, LookupError, RecursionError, EOFError, OverflowError, OSError),
    *(zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError),
)
"""What the standard library raises on damaged archives, JSON and arrays."""


@dataclasses.dataclass(frozen=True, eq=False)
class Saved:
    """A classifier read from a file, whose model is not loaded.

    Attributes:
        states: the states of the anchors, by demonstrations per class.
        terms: the fitted expert on words; None if the pool has none.
        digest: SHA-256 of the file.
    """

    path: pathlib.Path
    content: Content
    states: Mapping[int, lm_lib.States]
    terms: words.Terms | None
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
        inputs.prior(class_prior, self.content.labels_C)
        options = dataclasses.replace(self.content.options, class_prior=class_prior)
        return dataclasses.replace(self, content=dataclasses.replace(self.content, options=options))

    def load_model(self, mesh: Mesh | None) -> lm_lib.LanguageModel:
        """Return the model by the name that it had; raise UserError if it cannot be read or has changed."""
        identity = self.content.model
        with errors.prefixed(f"{self.path}: cannot load its model (in Python, give model=)"):
            model = lm_lib.LanguageModel.from_pretrained(
                identity.name,
                identity.dtype,
                mesh=mesh,
                deterministic=identity.deterministic,
                context=identity.context,
            )
        check_model(self, model)
        return model

    def restore(self, model: lm_lib.LanguageModel) -> Fitted:
        """Return the classifier with this model; raise UserError if another model made its states."""
        check_model(self, model)
        if self.content.encoder != fitting.encoder_fingerprint(self.content.options):
            raise errors.UserError(f"{self.path}: its sentence encoder has changed; restore its files, or fit again")
        return fitted_lib.complete(self.content, model, self.states, self.terms)


def check_no_folder(path: str | pathlib.Path) -> None:
    """Raise UserError if the path of a classifier is a folder, as the classifiers of earlier versions were."""
    if pathlib.Path(path).is_dir():
        raise errors.UserError(
            f"{path}: a folder, but a classifier is a file: fit again with another path "
            "(folders are classifiers of earlier versions)"
        )


def check_model(saved: Saved, model: lm_lib.LanguageModel) -> None:
    """Raise UserError unless this model made the states."""
    made = saved.content.model
    given = model.identity
    if made.fingerprint != given.fingerprint:
        advice = "restore the model's files" if made.name == given.name else f"give the model {made.name!r}"
        raise errors.UserError(
            f"{saved.path}: made with another model: {made.name} ({made.fingerprint[:8]}), not {given.name} "
            f"({given.fingerprint[:8]}); {advice}, or fit again"
        )
    for name in ("dtype", "deterministic", "context"):
        if getattr(made, name) != getattr(given, name):
            raise errors.UserError(
                f"{saved.path}: made with {name}={getattr(made, name)}, but the model has {getattr(given, name)}"
            )
    for states in saved.states.values():
        are_widths = all(block_ND.shape[1] == model.config.width for block_ND in states.blocks.values())
        if states.hidden_NE.shape[1] != model.config.state_width or not are_widths:
            raise errors.UserError(f"{saved.path}: damaged: its states are not as wide as the model's")
    if saved.content.layer > model.config.num_layers:
        raise errors.UserError(f"{saved.path}: damaged: it reads a block that the model does not have")


def lock(path: pathlib.Path) -> contextlib.AbstractContextManager[Any]:
    """Lock the path while a classifier for it is made, or raise UserError; every process of a run calls this."""
    return parallel.enter_in_main(files.lock(path))


def check_replaceable(path: pathlib.Path, num_bytes: int = 0) -> None:
    """Raise UserError unless a classifier of this size can be written to the path.

    The path must be missing, empty or a classifier.
    """
    check_no_folder(path)
    files.check_writable(path)
    with files.refusals(path):
        if path.exists() and path.stat().st_size and not _is_classifier(path):
            raise errors.UserError(f"{path}: exists and is not a classifier; choose another file")


def _is_classifier(path: pathlib.Path) -> bool:
    """Return whether a file starts like a classifier, so that a damaged one may be replaced."""
    name = _CONTENT.encode()
    with path.open("rb") as file:
        start = file.read(30 + len(name))
    return start.startswith(_START) and start.endswith(name)


def save(fitted: Fitted, path: pathlib.Path) -> None:
    """Write a classifier, replacing an earlier one; every process of a run calls this.

    Raises:
        UserError: as `check_replaceable`, or the system refuses to write.
    """
    parallel.call_in_main(functools.partial(_save, fitted, path))


def _save(fitted: Fitted, path: pathlib.Path) -> None:
    check_replaceable(path)
    with files.new_file(path) as draft, draft.open("wb") as file:
        _write(fitted, file)


def read(path: pathlib.Path) -> Saved:
    """Read a classifier without its model.

    Raises:
        UserError: there is none, it is damaged, another version wrote it, or process 0 reads another one.
    """
    check_no_folder(path)
    with files.refusals(path):
        file = path.open("rb")
    try:
        with file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            content, states, terms = _read(file)
    except _INVALID as error:
        # Other messages are those of libraries, about JSON or archives.
        reason = (
            f": {errors.one_line(error)}" if type(error) is ValueError or isinstance(error, errors.UserError) else ""
        )
        raise errors.UserError(f"{path}: not a classifier, or damaged{reason}") from None
    if parallel.call_in_main(lambda: digest) != digest:
        raise errors.UserError(f"{path}: not the classifier of process 0: give every process the same file")
    return Saved(path, content, states, terms, digest)


def to_bytes(fitted: Fitted) -> bytes:
    """Return the content of a classifier's file."""
    file = io.BytesIO()
    _write(fitted, file)
    return file.getvalue()


def from_bytes(content: bytes, model: lm_lib.LanguageModel) -> Fitted:
    """Return the classifier with the content of its file."""
    return Saved(pathlib.Path("pickle"), *_read(io.BytesIO(content)), digest="").restore(model)


def _write(fitted: Fitted, file: IO[bytes]) -> None:
    arrays: dict[str, Any] = {}
    for shots, states in fitted.readings.states.items():
        arrays[_HIDDEN.format(shots)] = states.hidden_NE
        arrays[_LOG_Z.format(shots)] = states.log_z_N
        if states.blocks:
            [block_output_ND] = states.blocks.values()
            arrays[_BLOCK_OUTPUT.format(shots)] = block_output_ND
    terms = fitted.pool.terms if fitted.pool else None
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(_CONTENT), content_lib.to_json(fitted.content))
        if terms:
            archive.writestr(zipfile.ZipInfo(_TERMS), "\n".join(terms.terms).encode())
            arrays[_TABLE] = terms.table_FC
        for name, array in arrays.items():
            # Without a date, equal classifiers have equal files.
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array, "<f4"), version=(1, 0), allow_pickle=False)


def _read(file: IO[bytes]) -> tuple[Content, dict[int, lm_lib.States], words.Terms | None]:
    """Read and check a classifier; raise one of `_INVALID` or UserError if it is none."""
    _check_ends(file)
    with zipfile.ZipFile(file) as archive:
        members = _members(archive, file.seek(0, io.SEEK_END))
        if _CONTENT not in members:
            raise ValueError(f"no member {_CONTENT}")
        content = content_lib.from_json(archive.read(members[_CONTENT]))
        kinds = (_HIDDEN, _LOG_Z, _BLOCK_OUTPUT) if content.layer else (_HIDDEN, _LOG_Z)
        names = {kind.format(view.demo_shots) for view in content.views for kind in kinds}
        has_terms = content.choice is not None and any(member.expert == Words.name for member in content.choice.used)
        if members.keys() != {_CONTENT, *names, *((_TERMS, _TABLE) if has_terms else ())}:
            raise ValueError(f"its members are not {', '.join(sorted(names))}")
        arrays = {name: _read_array(archive, members[name], len(content.anchors)) for name in sorted(names)}
        terms = _read_terms(archive, members, content) if has_terms else None
    states = {}
    for view in content.views:
        shots = view.demo_shots
        blocks = {content.layer: arrays[_BLOCK_OUTPUT.format(shots)]} if content.layer else {}
        is_deterministic = content.model.deterministic
        states[shots] = lm_lib.States(
            arrays[_HIDDEN.format(shots)], arrays[_LOG_Z.format(shots)], is_deterministic, blocks
        )
    return content, states, terms


def _read_terms(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], content: Content) -> words.Terms:
    """Return the expert on words; raise ValueError unless it has a number for each class that has anchors."""
    terms = archive.read(members[_TERMS]).decode().split("\n")
    table_FC = _read_array(archive, members[_TABLE], len(terms) + 1)
    if table_FC.shape[1] != 1 + len(np.unique(content.y_N)):
        raise ValueError(f"{_TABLE}: its columns are not the classes")
    return words.Terms(terms, table_FC)


def _check_ends(file: IO[bytes]) -> None:
    """Raise ValueError if bytes precede or follow the zip archive, which `zipfile` would ignore."""
    num_bytes = file.seek(0, io.SEEK_END)
    file.seek(0)
    start = file.read(len(_START))
    file.seek(max(0, num_bytes - _END_BYTES))
    end = file.read(len(_END))
    if start != _START or end != _END:
        raise ValueError("not a zip archive, or bytes before or after it")


def _members(archive: zipfile.ZipFile, num_bytes: int) -> Mapping[str, zipfile.ZipInfo]:
    """Return the members by name; raise ValueError if one is duplicate, compressed or larger than the file."""
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        if member.filename in members:
            raise ValueError(f"a duplicate member {member.filename}")
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise ValueError(f"the member {member.filename} is compressed")
        members[member.filename] = member
    if sum(member.file_size for member in members.values()) > num_bytes:
        raise ValueError("its members are larger than the file")
    return members


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, count: int) -> Any:
    """Return a finite float32 array of `count` rows; raise ValueError if the member holds anything else.

    The header is compared with the one that such an array has, because NumPy reads headers as Python.
    """
    num_axes = member.filename.rpartition("_")[2].index(".")  # A letter for each axis.
    content = archive.read(member)
    num_header = _HEADER_START + int.from_bytes(content[_HEADER_START - 2 : _HEADER_START], "little")
    num_numbers, rest = divmod(len(content) - num_header, 4)
    shape = (count, num_numbers // count)[:num_axes]
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    if rest or math.prod(shape) != num_numbers or content[:num_header] != header.getvalue():
        raise ValueError(f"{member.filename}: not a float32 array of {count} rows")
    array = np.frombuffer(content, "<f4", offset=num_header).reshape(shape)
    if not np.isfinite(array).all():
        raise ValueError(f"{member.filename}: a number is not finite")
    return array
