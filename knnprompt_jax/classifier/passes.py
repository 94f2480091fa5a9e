"""Passes of the language model for calls of any size: few compilations, and the latest passes are remembered."""

import collections
import dataclasses
import weakref

import jax
import numpy as np

from knnprompt_jax import lm as lm_lib
from knnprompt_jax import parallel, progress
from knnprompt_jax.lm import chunks
from knnprompt_jax.prompts import layout, packing

REMEMBERED_BYTES = 256 * 2**20
# So that a search over k, or one prediction after another of the same texts, reads each text once.
_latest: "weakref.WeakKeyDictionary[lm_lib.LanguageModel, collections.OrderedDict[str, lm_lib.States]]" = (
    weakref.WeakKeyDictionary()
)


def read(model: lm_lib.LanguageModel, prompts: layout.Prompts) -> lm_lib.States:
    """The states of the prompts, from the latest passes of this model where these prompts are among them."""
    passes = _latest.setdefault(model, collections.OrderedDict())
    key = chunks.prompts_hash(prompts)
    if key not in passes:
        with progress.bar(prompts.num_prompts, "reading") as report:
            passes[key] = model.states(prompts, lambda group: _shape(model, group), report)
        while len(passes) > 1 and sum(map(_num_bytes, passes.values())) > REMEMBERED_BYTES:
            passes.popitem(last=False)
    passes.move_to_end(key)
    return passes[key]


def on_host(*parts: lm_lib.States) -> lm_lib.States:
    """The states of all parts, one after the other, in the memory of every process."""
    return jax.tree.map(
        lambda *arrays: np.concatenate(arrays) if len(arrays) > 1 else np.asarray(*arrays),
        *map(parallel.replicate, parts),
    )


def on_devices(states: lm_lib.States, mesh: jax.sharding.Mesh) -> lm_lib.States:
    """States in host memory, where a pass leaves them: their rows split over every device of the mesh."""
    rows = parallel.by_rows(mesh, len(states)).spec
    return jax.tree.map(lambda array: parallel.put(array, mesh, rows), states)


def _shape(model: lm_lib.LanguageModel, group: layout.PromptGroup) -> packing.PackShape:
    """The packing of a group with its sizes rounded up to powers of two, which calls of about the same size share."""
    data = model.mesh.shape[parallel.DATA]
    shape = packing.choose_shape([group], model.step_tokens, data)
    most = max(1, model.step_tokens // shape.width)
    # With a single shard, what fits one step still does.
    rows = min(next_power(shape.rows), most) if data == 1 else shape.rows
    return dataclasses.replace(shape, rows=rows, reads=next_power(shape.reads))


def next_power(number: int) -> int:
    """The least power of two that is no smaller."""
    return 1 << (number - 1).bit_length()


def _num_bytes(states: lm_lib.States) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(states))
