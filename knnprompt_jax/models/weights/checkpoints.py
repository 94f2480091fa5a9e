"""Load and save models in Hugging Face's formats: from file to shard, tensor by tensor, by their family's tables."""

import collections
import functools
import json
import math
import pathlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from flax import nnx
from jax.experimental.layout import Format

from knnprompt_jax import errors
from knnprompt_jax import files as files_lib
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, registry
from knnprompt_jax.models.gguf import tensors as gguf_tensors
from knnprompt_jax.models.weights import conversion, kept_arrays, kept_files, tensor_files

Source = tuple[conversion.Piece, tensor_files.Tensor]
# From the path of a weight ("blocks.mlp.up_kernel") to its sharding.
Placement = Callable[[str], jax.sharding.Sharding | Format]

_MAX_LISTED = 8
_COMPARED_ROWS = 4096


def load(
    source: pathlib.Path, config: config_lib.DecoderConfig, dtype: jnp.dtype, placement: Placement | None = None
) -> registry.Model:
    """Return the model of a folder or GGUF file in `dtype`; without `placement` on the first device.

    Names and shapes are checked both ways before any value is read. A process reads only the
    slices of its devices of safetensors and Flax files; a GGUF file is converted whole.

    Raises:
        UserError: unknown, missing, duplicate and misshapen tensors (all in one message), unreadable files,
            values that are not finite.
    """
    placement = placement or (lambda path: jax.sharding.SingleDeviceSharding(jax.local_devices()[0]))
    graph, abstract = nnx.split(registry.abstract(config, dtype))
    leaves = {".".join(map(str, path)): variable for path, variable in nnx.to_flat_state(abstract)}
    shapes = {path: leaf.shape for path, leaf in leaves.items()}
    kept = _converted(source, config, shapes) if source.suffix == ".gguf" else None
    try:
        sources = {} if kept else _find_sources(source, config, shapes)
        for path, leaf in leaves.items():
            if kept:
                read = functools.partial(_read_converted, kept[path], leaf.dtype)
            else:
                read = functools.partial(_read_box, sources[path], leaf.shape, leaf.dtype)
            leaf.set_value(jax.make_array_from_callback(leaf.shape, placement(path), read))
    finally:
        gguf_tensors.release()
    return nnx.merge(graph, abstract)


def save(folder: pathlib.Path, model: registry.Model, hf: hf_config.Json, dtype: jnp.dtype) -> None:
    """Write model.safetensors and `hf`, the model's config.json, for `transformers`; each file is replaced whole."""
    family = registry.FAMILIES[model.config.family]
    leaves = {".".join(map(str, path)): variable[...] for path, variable in nnx.to_flat_state(nnx.state(model))}
    arrays = {path: np.asarray(leaf.astype(dtype)) for path, leaf in leaves.items()}
    tensors = dict(conversion.export(conversion.expand(family.table, model.config, arrays), arrays))
    written = {key: value for key, value in hf.items() if key != "dtype"}  # The newer name of torch_dtype.
    written |= {"architectures": [family.architecture], "model_type": model.config.family}
    written |= {"torch_dtype": jnp.dtype(dtype).name}
    with files_lib.new_file(folder / "model.safetensors") as path:
        safetensors.numpy.save_file(tensors, path, metadata={"format": "pt"})
    files_lib.write(folder / "config.json", json.dumps(written, indent=2) + "\n")


def _converted(
    file: pathlib.Path, config: config_lib.DecoderConfig, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, tensor_files.Tensor] | None:
    """Return our arrays of a GGUF file in float32, from a file in the user's cache folder, which is made if missing.

    Return None if there is no cache folder, the arrays exceed its bound, or the system refuses.
    """
    path = kept_files.path_of(file, "safetensors")
    if path is None or 4 * sum(map(math.prod, shapes.values())) > kept_files.MAX_BYTES:
        return None
    found = kept_arrays.read(path, shapes)
    if found is None:
        sources = _find_sources(file, config, shapes)
        arrays = {name: _read_whole(sources[name], shape) for name, shape in shapes.items()}
        gguf_tensors.release()
        kept_arrays.write(path, arrays)
        del arrays
        found = kept_arrays.read(path, shapes)
    return found


def _read_whole(sources: list[Source], shape: tuple[int, ...]) -> np.ndarray:
    return _read_box(sources, shape, np.dtype(np.float32), tuple(slice(0, size) for size in shape))


def _read_converted(tensor: tensor_files.Tensor, dtype: np.dtype, index: tuple[slice, ...]) -> np.ndarray:
    return np.asarray(tensor.view()[index]).astype(dtype, copy=False)


def _find_sources(
    path: pathlib.Path, config: config_lib.DecoderConfig, leaves: Collection[str]
) -> dict[str, list[Source]]:
    """Return the tensors of each leaf, with all names and shapes checked; a tied model may have a copy as its head."""
    is_gguf = path.suffix == ".gguf"
    files = [path] if is_gguf else tensor_files.find(path)
    table = _table(files[0], config)
    pieces = conversion.expand(table, config, {*leaves, "head_rows"})
    names = dict.fromkeys(piece.theirs for piece in pieces)
    expected = collections.defaultdict(list)
    for piece in pieces:
        expected[table.bare(piece.theirs)].append(piece)
    stored = collections.defaultdict(list)
    for tensor in gguf_tensors.read_tensors(path, names) if is_gguf else tensor_files.read(files):
        if not re.fullmatch(table.buffers, key := table.bare(tensor.key)):
            stored[key].append(tensor)
    mismatches = _compare(expected, stored, config.tied_head)
    if any(mismatches.values()):
        translated = gguf_tensors.translate(path, names) if is_gguf else {}
        theirs = {table.bare(hf_name): name for name, hf_name in translated.items()}
        described = _describe(mismatches, lambda word: theirs.get(table.bare(word), word))
        description = "metadata" if is_gguf else "config.json"
        raise errors.UserError(f"{path}: the weights do not fit its {description}: {described}")
    sources = collections.defaultdict(list)
    for key, (tensor,) in stored.items():
        for piece in expected[key]:
            sources[piece.ours].append((piece, tensor))
    if config.tied_head and "head_rows" in sources:
        _check_tied(sources["head_rows"][0], sources["tokens"][0])
    return sources


def _table(file: pathlib.Path, config: config_lib.DecoderConfig) -> conversion.NameTable:
    """Return the names of a file's tensors; raise UserError if its format has none for this family."""
    family = registry.FAMILIES[config.family]
    if file.suffix != ".msgpack":
        return family.table
    if not family.flax_table:
        raise errors.UserError(f"{file}: Flax files of {config.family} models were never published; use safetensors")
    return family.flax_table


def _compare(
    expected: Mapping[str, list[conversion.Piece]],
    stored: Mapping[str, list[tensor_files.Tensor]],
    is_tied: bool,
) -> dict[str, list[str]]:
    """Return descriptions of the tensors that do not fit, by the kind of mismatch; both arguments have bare names."""
    optional = {key for key, (piece, *_) in expected.items() if piece.ours == "head_rows" and is_tied}
    return {
        "unknown": [tensors[0].key for key, tensors in stored.items() if key not in expected],
        "missing": [piece.theirs for key, (piece, *_) in expected.items() if key not in stored and key not in optional],
        "duplicate": [" = ".join(tensor.key for tensor in tensors) for tensors in stored.values() if len(tensors) > 1],
        "misshapen": [
            f"{tensor.key} is {tensor.dtype}{list(tensor.shape)} and should be {list(expected[key][0].shape)}"
            for key, (tensor, *_) in stored.items()
            if key in expected
            and (tensor.shape != expected[key][0].shape or not jnp.issubdtype(tensor.dtype, jnp.floating))
        ],
    }


def _describe(mismatches: Mapping[str, list[str]], name_of: Callable[[str], str]) -> str:
    """Return the numbers and the first descriptions of each kind of mismatch, with the tensors' names replaced."""
    described = []
    for kind, texts in mismatches.items():
        first = [" ".join(map(name_of, text.split(" "))) for text in texts[:_MAX_LISTED]]
        if texts:
            described.append(f"{len(texts)} {kind} ({', '.join(first)}{', …' * (len(texts) > _MAX_LISTED)})")
    return "; ".join(described)


def _check_tied(head: Source, tokens: Source) -> None:
    """Raise UserError if the stored head differs from the embeddings, which a tied model uses as its head."""
    head_piece, head_tensor = head
    tokens_piece, tokens_tensor = tokens
    head_VE = head_piece.import_view(head_tensor.view())
    tokens_VE = tokens_piece.import_view(tokens_tensor.view())
    for row in range(0, len(tokens_VE), _COMPARED_ROWS):
        if not np.array_equal(head_VE[row : row + _COMPARED_ROWS], tokens_VE[row : row + _COMPARED_ROWS]):
            difference = f"{head_tensor.file}: {head_tensor.key} differs from {tokens_tensor.key}"
            raise errors.UserError(f"{difference}, but config.json ties them; set tie_word_embeddings to false there")


def _read_box(sources: list[Source], shape: tuple[int, ...], dtype: np.dtype, index: tuple[slice, ...]) -> np.ndarray:
    """Read a slice of one of our arrays from the tensors that overlap it."""
    bounds = [range(size)[cut] for cut, size in zip(index, shape, strict=True)]
    box = np.empty([len(bound) for bound in bounds], dtype)
    for piece, tensor in sources:
        axes = list(zip(bounds, piece.start, piece.box, strict=True))
        shared = [range(max(bound.start, start), min(bound.stop, start + size)) for bound, start, size in axes]
        if all(shared):
            target = _slices(shared, [bound.start for bound in bounds])
            source = _slices(shared, piece.start)
            box[target] = piece.import_view(tensor.view())[source]
            if not np.isfinite(box[target]).all():
                raise errors.UserError(f"{tensor.file}: tensor {tensor.key} holds NaN or infinity as {box.dtype}")
    return box


def _slices(parts: list[range], starts: Iterable[int]) -> tuple[slice, ...]:
    return tuple(slice(part.start - start, part.stop - start) for part, start in zip(parts, starts, strict=True))
