"""The model families by the `model_type` of their config.json, published shapes, and models in Hugging Face folders.

Weights go from file to shard by their family's tables of names. Headers are read at once, values on demand. Each read
maps its tensor and releases it with the view, so that only the tensors in use take memory.
"""

import collections
import dataclasses
import functools
import hashlib
import json
import math
import os
import pathlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent import futures
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
from flax import nnx
from jax.experimental.layout import Format

from knnprompt_jax.common import errors, files
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import convert, decoder, hub
from knnprompt_jax.models.families import bert, gpt2, gpt_neox, llama, opt, weight_names

Model = Any  # A decoder.Decoder or bert.Encoder, by the family of its config.
_MODULES = (gpt2, opt, llama, gpt_neox, bert)
FAMILIES = {family.name: family for module in _MODULES for family in module.FAMILIES}
ENCODERS = tuple(family.name for family in bert.FAMILIES)
# The families of sentence encoders; those of a decoder may attend in both directions.
SENTENCE_ENCODERS = (*ENCODERS, "gemma3_text")
LANGUAGE_MODELS = tuple(name for name in FAMILIES if name not in ENCODERS)
# The keys of config.json that describe the shape of published models, by Hub name. `PUBLISHED` lacks the encoders.
_PUBLISHED_FILE = pathlib.Path(__file__).with_name("families") / "published.json"
PUBLISHED_CONFIGS = json.loads(_PUBLISHED_FILE.read_text(encoding="utf-8"))
PUBLISHED = {name: hf for name, hf in PUBLISHED_CONFIGS.items() if hf["model_type"] not in ENCODERS}
# From the path of a weight ("blocks.mlp.up_kernel") to its sharding.
Placement = Callable[[str], jax.sharding.Sharding | Format]


def config_from_hf(
    hf: config_lib.Json, families: Collection[str] = LANGUAGE_MODELS, path: str = "config.json"
) -> config_lib.DecoderConfig:
    """Return the configuration that a config.json at `path` describes, which must be of one of these families.

    Raises:
        UserError: the architecture or one of its switches is not supported, or a key is unknown.
    """
    fields = config_lib.Fields(hf, path)
    name = fields.choice("model_type", None, families)
    fields.require("quantization_config", None)
    if name in LANGUAGE_MODELS:
        fields.require("is_causal", True)
    if families != SENTENCE_ENCODERS:
        fields.require("use_bidirectional_attention", False)
    config = FAMILIES[name].config_from_hf(fields)
    fields.refuse_unread()
    return config


@functools.cache
def num_parameters(config: config_lib.DecoderConfig) -> int:
    """Return the number of parameters of the whole model; a tied head counts once."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(abstract(config)))


def abstract(config: config_lib.DecoderConfig, dtype: jnp.dtype = jnp.float32) -> Model:
    """Return the model without values: shapes and dtypes of its weights."""
    module: Callable[..., Model] = bert.Encoder if config.family in ENCODERS else decoder.Decoder
    return nnx.eval_shape(lambda: module(config, nnx.Rngs(0), dtype))


def describe(
    name_or_folder: str, families: Collection[str] = LANGUAGE_MODELS, weights: bool = True
) -> tuple[config_lib.DecoderConfig, pathlib.Path]:
    """Return the configuration of the model of a name, folder or GGUF file, and its folder.

    Weights are downloaded only with `weights`, and only for supported models.

    Raises:
        UserError: as `hub.resolve`, or the model is of none of these families.
    """
    folder = hub.resolve(name_or_folder, config_only=True)
    path = folder / "config.json"
    config = config_from_hf(config_lib.read(path), families, str(path))
    return config, hub.resolve(name_or_folder, weights=weights)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor of a file; slicing `view()` reads only the slice."""

    file: pathlib.Path
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int

    def view(self) -> np.ndarray:
        """Map the tensor."""
        return np.memmap(self.file, self.dtype, "r", self.offset, self.shape)


Source = tuple[weight_names.Piece, Tensor]


def load(
    folder: pathlib.Path, config: config_lib.DecoderConfig, dtype: jnp.dtype, placement: Placement | None = None
) -> Model:
    """Return the model of a folder in `dtype`; without `placement` on the first device.

    Names and shapes are checked both ways before any value is read. A process reads only the slices of its devices.

    Raises:
        UserError: unknown, missing, duplicate and misshapen tensors (all in one message), unreadable files,
            values that are not finite.
    """
    placement = placement or (lambda path: jax.sharding.SingleDeviceSharding(jax.local_devices()[0]))
    graph, state = nnx.split(abstract(config, dtype))
    leaves = {".".join(map(str, path)): variable for path, variable in nnx.to_flat_state(state)}
    sources = _find_sources(folder, config, leaves)

    def read(path: str) -> jax.Array:
        leaf = leaves[path]
        read_box = functools.partial(_read_box, sources[path], leaf.shape, leaf.dtype)
        return jax.make_array_from_callback(leaf.shape, placement(path), read_box)

    with futures.ThreadPoolExecutor(os.cpu_count()) as pool:  # Copying releases Python's lock.
        for leaf, array in zip(leaves.values(), pool.map(read, leaves), strict=True):
            leaf.set_value(array)
    return nnx.merge(graph, state)


def fingerprint(folder: pathlib.Path) -> str:
    """Return the SHA-256 (hex) of a folder's weights, config.json and tokenizer files, wherever the folder is.

    The hash of each file is remembered in the user's cache folder until its size or times change.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    with files.refusals(folder):
        sources = sorted([*hub.find_weights(folder), *hub.find_small_files(folder)])
        relative = [file.relative_to(folder).as_posix() for file in sources]
        with futures.ThreadPoolExecutor(os.cpu_count()) as pool:  # Hashing releases Python's lock.
            hashes = list(pool.map(files.sha256, sources))
        return hashlib.sha256(json.dumps([relative, hashes]).encode()).hexdigest()


def read_header(file: pathlib.Path) -> Iterator[Tensor]:
    """Yield the floating-point tensors of a file; others are no weights."""
    try:
        with safetensors.safe_open(file, "numpy"):  # Checks that the tensors fill the file without gaps.
            pass
    except (OSError, safetensors.SafetensorError) as error:
        raise errors.UserError(f"{file}: truncated or corrupt: {errors.one_line(error)}") from None
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
    for key, entry in header.items():
        if key != "__metadata__" and entry["dtype"] in convert.DTYPES:
            offset = 8 + length + entry["data_offsets"][0]
            yield Tensor(file, key, tuple(entry["shape"]), convert.DTYPES[entry["dtype"]], offset)


def _find_sources(
    folder: pathlib.Path, config: config_lib.DecoderConfig, leaves: Collection[str]
) -> dict[str, list[Source]]:
    """Return the tensors of each leaf, with names and shapes checked; a tied model's copy of the head is skipped."""
    table = FAMILIES[config.family].table
    expected = collections.defaultdict(list)
    for piece in weight_names.expand(table, config, leaves):
        expected[table.bare(piece.theirs)].append(piece)
    stored = collections.defaultdict(list)
    skipped = "|".join([table.buffers, *[r"lm_head\.weight|embed_out\.weight"] * config.tied_head])
    for file in hub.find_weights(folder):
        for tensor in read_header(file):
            if not re.fullmatch(skipped, key := table.bare(tensor.key)):
                stored[key].append(tensor)
    if mismatches := _compare(expected, stored):
        raise errors.UserError(f"{folder}: the weights do not fit its config.json: {mismatches}")
    sources = collections.defaultdict(list)
    for key, (tensor,) in stored.items():
        for piece in expected[key]:
            sources[piece.ours].append((piece, tensor))
    return sources


def _compare(expected: Mapping[str, list[weight_names.Piece]], stored: Mapping[str, list[Tensor]]) -> str:
    """Return the numbers and the first of the tensors that do not fit; "" if all do. Both arguments have bare names."""
    mismatches = {
        "unknown": [tensors[0].key for key, tensors in stored.items() if key not in expected],
        "missing": [pieces[0].theirs for key, pieces in expected.items() if key not in stored],
        "duplicate": [" = ".join(tensor.key for tensor in tensors) for tensors in stored.values() if len(tensors) > 1],
        "misshapen": [
            f"{tensors[0].key} is {list(tensors[0].shape)} and should be {list(expected[key][0].shape)}"
            for key, tensors in stored.items()
            if key in expected and tensors[0].shape != expected[key][0].shape
        ],
    }
    return "; ".join(f"{len(texts)} {kind} ({errors.join_names(texts)})" for kind, texts in mismatches.items() if texts)


def _read_box(sources: list[Source], shape: tuple[int, ...], dtype: np.dtype, index: tuple[slice, ...]) -> np.ndarray:
    """Read a slice of one of our arrays from the tensors that overlap it; a whole tensor is mapped, not copied."""
    bounds = [range(size)[cut] for cut, size in zip(index, shape, strict=True)]
    box = _aligned(tuple(len(bound) for bound in bounds), dtype)
    for piece, tensor in sources:
        axes = list(zip(bounds, piece.start, piece.box, strict=True))
        shared = [range(max(bound.start, start), min(bound.stop, start + size)) for bound, start, size in axes]
        if all(shared):
            target = _slices(shared, [bound.start for bound in bounds])
            part = piece.import_view(tensor.view())[_slices(shared, piece.start)]
            is_usable = part.flags.c_contiguous and part.ctypes.data % convert.ALIGNMENT == 0
            if is_usable and part.shape == box.shape and part.dtype == dtype:
                box = part
            else:
                box[target] = part
            if not np.isfinite(box[target]).all():
                raise errors.UserError(f"{tensor.file}: tensor {tensor.key} holds NaN or infinity as {box.dtype}")
    return box


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an empty array whose address is a multiple of 64 bytes: JAX copies other arrays on CPUs."""
    size = math.prod(shape) * dtype.itemsize
    buffer = np.empty(size + convert.ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % convert.ALIGNMENT
    return buffer[start : start + size].view(dtype).reshape(shape)


def _slices(parts: list[range], starts: Iterable[int]) -> tuple[slice, ...]:
    return tuple(slice(part.start - start, part.stop - start) for part, start in zip(parts, starts, strict=True))
