"""Write a model as a Hugging Face folder that `transformers` loads: the tables of weight names, read backwards."""

import itertools
import json
import pathlib
from collections.abc import Iterable, Iterator, Mapping

import einops
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from flax import nnx

from knnprompt_jax.common import files
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hub, registry
from knnprompt_jax.models.families import weight_names


def save(folder: pathlib.Path, model: registry.Model, hf: config_lib.Json, dtype: jnp.dtype) -> None:
    """Write model.safetensors and `hf`, the model's config.json; each file is replaced whole."""
    leaves = {".".join(map(str, path)): variable[...] for path, variable in nnx.to_flat_state(nnx.state(model))}
    arrays = {path: np.asarray(leaf.astype(dtype)) for path, leaf in leaves.items()}
    table = registry.FAMILIES[model.config.family].table
    tensors = dict(_export(weight_names.expand(table, model.config, arrays), arrays))
    written = {key: value for key, value in hf.items() if key != "dtype"}  # The newer name of torch_dtype.
    written |= {"model_type": model.config.family, "torch_dtype": jnp.dtype(dtype).name}
    with files.new_file(folder / hub.SAFETENSORS) as path:
        safetensors.numpy.save_file(tensors, path, metadata={"format": "pt"})
    files.write(folder / "config.json", json.dumps(written, indent=2) + "\n")


def _export(pieces: Iterable[weight_names.Piece], arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the tensors of `transformers` by name, made from our arrays."""
    ordered = sorted(pieces, key=lambda piece: (piece.theirs, piece.segment.start))
    for name, group in itertools.groupby(ordered, key=lambda piece: piece.theirs):
        members = list(group)
        whole = np.concatenate([_cut(piece, arrays[piece.ours]) for piece in members], members[0].axis)
        left, right = members[0].pattern.split(" -> ")
        theirs = einops.rearrange(whole, f"{right} -> {left}", **members[0].sizes)
        yield name, np.ascontiguousarray(theirs.reshape(members[0].shape))


def _cut(piece: weight_names.Piece, array: np.ndarray) -> np.ndarray:
    """Return the piece's box of our array in the arrangement of the pattern's right side."""
    box = array[tuple(slice(start, start + size) for start, size in zip(piece.start, piece.box, strict=True))]
    shape = [piece.sizes[axis] for axis in weight_names.sides(piece.pattern)[1]]
    if shape:
        shape[piece.axis] = piece.segment.stop - piece.segment.start
    return box.reshape(shape)
