"""Models from and to Hugging Face folders: from file to shard, tensor by tensor, by the tables of their family."""

import collections
import functools
import hashlib
import json
import pathlib
import re
from collections.abc import Callable, Collection, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from flax import nnx
from jax.experimental.layout import Format

from knnprompt_jax import errors
from knnprompt_jax import files as files_lib
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import conversion, hf_config, int8, registry, tensor_files
from knnprompt_jax.models.gguf import tensors as gguf_tensors

Source = tuple[conversion.Piece, tensor_files.Tensor]
# From the path of a weight ("blocks.mlp.up_kernel") to where it lies.
Placement = Callable[[str], jax.sharding.Sharding | Format]

_LISTED = 8
_SCALE = "_scale"  # How the name of a kernel's scales in 8 bits ends, after the kernel's own.
_COMPARED_ROWS = 4096


def load(
    source: pathlib.Path, config: config_lib.DecoderConfig, dtype: jnp.dtype, placement: Placement | None = None
) -> registry.Model:
    """The model whose weights a folder or GGUF file holds, as `dtype`; without `placement` on the first device.

    Names and shapes are checked both ways before any value is read. A process reads only the slices of its devices. Of int8, one stack
    of kernels at a time is on the devices in bfloat16.

    Raises:
        UserError: unknown, missing, duplicate and misshapen tensors (all in one message), unreadable files,
            values that are not finite.
    """
    placement = placement or (lambda path: jax.sharding.SingleDeviceSharding(jax.local_devices()[0]))
    graph, abstract = nnx.split(registry.abstract(config, dtype))
    leaves = {".".join(map(str, path)): variable for path, variable in nnx.to_flat_state(abstract)}
    try:
        sources = _match(source, config, leaves)
        if config.tied_head and "head_rows" in sources:
            _check_tied(sources["head_rows"][0], sources["tokens"][0])
        for path, leaf in leaves.items():
            if path.endswith(_SCALE):
                continue
            read = functools.partial(_read_box, sources[path], leaf.shape, config_lib.activations(leaf.dtype))
            array = jax.make_array_from_callback(leaf.shape, placement(path), read)
            if leaf.dtype == jnp.int8:
                scale = leaves[path + _SCALE]
                inputs = tuple(axis for axis, size in enumerate(scale.shape) if size == 1)
                places = placement(path), placement(path + _SCALE)
                array, scales = jax.jit(int8.quantise, static_argnums=1, out_shardings=places)(array, inputs)
                scale.set_value(scales)
            leaf.set_value(array)
    finally:
        _release()
    return nnx.merge(graph, abstract)


def save(folder: pathlib.Path, model: registry.Model, hf: hf_config.Json, dtype: jnp.dtype) -> None:
    """Writes config.json and model.safetensors, which `transformers` loads; each file appears whole or not at all.

    `hf` must be a config.json that describes `model`.
    """
    family = registry.FAMILIES[model.config.family]
    if registry.config_from_hf({**hf, "model_type": model.config.family}, registry.FAMILIES) != model.config:
        raise ValueError("the config.json to be written does not describe the model")
    leaves = {".".join(map(str, path)): variable[...] for path, variable in nnx.to_flat_state(nnx.state(model))}
    arrays = {path: np.asarray(leaf.astype(dtype)) for path, leaf in leaves.items()}
    tensors = dict(conversion.export(conversion.expand(family.table, model.config, arrays), arrays))
    described = {key: value for key, value in hf.items() if key != "dtype"}  # The newer name of torch_dtype.
    described |= {"architectures": [family.architecture], "model_type": model.config.family}
    described |= {"torch_dtype": jnp.dtype(dtype).name}
    folder.mkdir(parents=True, exist_ok=True)
    with files_lib.new_file(folder / "model.safetensors") as path:
        safetensors.numpy.save_file(tensors, path, metadata={"format": "pt"})
    with files_lib.new_file(folder / "config.json") as path:
        path.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def fingerprint(path: pathlib.Path, config: config_lib.DecoderConfig) -> str:
    """SHA-256 (hex) over the configuration and every tensor's name, shape, type and some bytes; of a GGUF file, its tokenizer too.

    The bytes are the first and last 1,024 and up to 61 between: another training step changes them all, a change to
    a few weights by hand may go unseen.
    """
    digest = hashlib.sha256(repr(config).encode())
    for described, bytes_n in _stored(path):
        digest.update(described)
        for sample in (bytes_n[:1024], bytes_n[-1024:], bytes_n[:: len(bytes_n) // 61 + 1]):
            digest.update(sample.tobytes())
    for part in gguf_tensors.fingerprint_parts(path) if _is_gguf(path) else ():
        digest.update(part)
    _release()
    return digest.hexdigest()


def _stored(path: pathlib.Path) -> Iterator[tuple[bytes, np.ndarray]]:
    """What each tensor is, in words, and its bytes, by name."""
    if _is_gguf(path):
        yield from gguf_tensors.stored(path)
        return
    for tensor in sorted(tensor_files.read(tensor_files.find(path)), key=lambda tensor: tensor.key):
        yield f"{tensor.key} {tensor.shape} {tensor.dtype}".encode(), tensor.view().reshape(-1).view(np.uint8)


def _is_gguf(path: pathlib.Path) -> bool:
    return path.suffix == ".gguf"


def _release() -> None:
    tensor_files.release()
    gguf_tensors.release()


def _match(path: pathlib.Path, config: config_lib.DecoderConfig, leaves: Collection[str]) -> dict[str, list[Source]]:
    """The tensors that make up each leaf, all names and shapes checked; a tied model may bring a head."""
    files = [path] if _is_gguf(path) else tensor_files.find(path)
    table = _table(config, files[0])
    pieces = conversion.expand(table, config, {*leaves, "head_rows"})
    wanted = collections.defaultdict(list)
    for piece in pieces:
        wanted[table.bare(piece.theirs)].append(piece)
    names = dict.fromkeys(piece.theirs for piece in pieces)
    stored = collections.defaultdict(list)
    for tensor in gguf_tensors.read_tensors(path, names) if _is_gguf(path) else tensor_files.read(files):
        if not re.fullmatch(table.buffers, key := table.bare(tensor.key)):
            stored[key].append(tensor)
    optional = {key for key, (piece, *_) in wanted.items() if piece.ours == "head_rows" and config.tied_head}
    problems = _problems(wanted, stored, optional)
    if problems:
        raise errors.UserError(f"{path}: the weights are not those of its config.json: {'; '.join(problems)}")
    sources = collections.defaultdict(list)
    for key, tensors in stored.items():
        for piece in wanted[key]:
            sources[piece.ours].append((piece, tensors[0]))
    return sources


def _table(config: config_lib.DecoderConfig, file: pathlib.Path) -> conversion.NameTable:
    family = registry.FAMILIES[config.family]
    if file.suffix != ".msgpack":
        return family.table
    if not family.flax_table:
        raise errors.UserError(f"{file}: Flax files of {config.family} models were never published; use safetensors")
    return family.flax_table


def _problems(
    wanted: dict[str, list[conversion.Piece]], stored: dict[str, list[tensor_files.Tensor]], optional: set[str]
) -> list[str]:
    misshapen = [
        f"{tensor.key} is {tensor.dtype}{list(tensor.shape)} and should be {list(wanted[key][0].shape)}"
        for key, (tensor, *_) in stored.items()
        if key in wanted and (tensor.shape != wanted[key][0].shape or not jnp.issubdtype(tensor.dtype, jnp.floating))
    ]
    kinds = {
        "unknown": [tensors[0].key for key, tensors in stored.items() if key not in wanted],
        "missing": [piece.theirs for key, (piece, *_) in wanted.items() if key not in stored and key not in optional],
        "duplicate": [" = ".join(tensor.key for tensor in tensors) for tensors in stored.values() if len(tensors) > 1],
        "misshapen": misshapen,
    }
    return [
        f"{len(names)} {kind} ({', '.join(names[:_LISTED])}{', …' * (len(names) > _LISTED)})"
        for kind, names in kinds.items()
        if names
    ]


def _read_box(sources: list[Source], shape: tuple[int, ...], dtype: np.dtype, index: tuple[slice, ...]) -> np.ndarray:
    """A slice of an array of ours, from the tensors that overlap it."""
    bounds = [range(size)[cut] for cut, size in zip(index, shape, strict=True)]
    box = np.empty([len(bound) for bound in bounds], dtype)
    for piece, tensor in sources:
        axes = list(zip(bounds, piece.start, piece.box, strict=True))
        shared = [range(max(bound.start, start), min(bound.stop, start + size)) for bound, start, size in axes]
        if all(shared):
            target = tuple(_within(part, bound.start) for part, bound in zip(shared, bounds, strict=True))
            source = tuple(_within(part, start) for part, start in zip(shared, piece.start, strict=True))
            box[target] = piece.import_view(tensor.view())[source]
            if not np.isfinite(box[target]).all():
                raise errors.UserError(f"{tensor.file}: tensor {tensor.key} holds NaN or infinity as {box.dtype}")
    return box


def _within(part: range, start: int) -> slice:
    return slice(part.start - start, part.stop - start)


def _check_tied(head: Source, tokens: Source) -> None:
    """Refuses a head that differs from the embeddings, which the model is to use as head."""
    (head_piece, head_tensor), (tokens_piece, tokens_tensor) = head, tokens
    head_VE, tokens_VE = head_piece.import_view(head_tensor.view()), tokens_piece.import_view(tokens_tensor.view())
    for row in range(0, len(tokens_VE), _COMPARED_ROWS):
        if not np.array_equal(head_VE[row : row + _COMPARED_ROWS], tokens_VE[row : row + _COMPARED_ROWS]):
            place = f"{head_tensor.file}: {head_tensor.key} differs from {tokens_tensor.key}"
            raise errors.UserError(f"{place}, but config.json ties them; set tie_word_embeddings to false there")
