"""Read each distinct prompt once, skip cached prompts, and cache finished chunks.

A cache holds rows of float32 numbers by key: one row for the state of a prompt, and one for each requested layer. The
key of a state is the SHA-256 of the prompt's tokens, the files of the model, and the options that change its numbers. A restarted
job finds its finished chunks in the cache. Each chunk is packed independently, so the resumed job gives bitwise the same states.

In names of arrays, N counts prompts and U distinct prompts.
"""

import dataclasses
import functools
import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from knnprompt_jax import lm, parallel, progress, rounding
from knnprompt_jax.prompts import layout, packing
from knnprompt_jax.states import cache as cache_lib

FORMAT = 2  # Version of cached rows: increase it whenever a pass computes different values.
_CHUNK_STEPS = {"cpu": 16}
_CHUNK_STEPS_ON_ACCELERATORS = 64


class Reading(NamedTuple):
    """The states of prompts, the number of prompts that the model read for them, and its seconds."""

    states: lm.States
    num_read: int
    seconds: float


def read(
    model: lm.LanguageModel,
    prompts: layout.Prompts,
    cache: cache_lib.AnyCache | None = None,
    *,
    title: str = "",
    repeated: bool = False,
    layers: tuple[int, ...] = (),
) -> lm.States:
    """Return the states of all prompts, in order, their rows split over every device.

    Args:
      cache: where states are looked up and kept; by default all prompts are read.
      title: the title of the progress bar.
      repeated: whether more calls with the same demonstrations follow. The prefix then stays in device memory, and calls of about
        the same size share their compiled programs, at the cost of a few percent of padding.
      layers: the blocks, from 1, whose outputs are returned too; the pass computes all blocks in any case.

    Raises:
      UserError: a distribution is not finite, because weights are damaged or overflow.
    """
    [reading] = read_sets(model, [prompts], cache, [title], repeated, layers)
    return reading.states


def read_sets(
    model: lm.LanguageModel,
    sets: Sequence[layout.Prompts],
    cache: cache_lib.AnyCache | None = None,
    titles: Sequence[str] = (),
    repeated: bool = False,
    layers: tuple[int, ...] = (),
) -> Iterator[Reading]:
    """Yield the states of each set of prompts, and what they cost; all sets share one packing and its compiled programs.

    `titles` has one title per set. The other arguments are those of `read`.
    """
    if repeated:
        sets = [_after_demonstrations(prompts) for prompts in sets]
        shape_of: packing.ShapeOf = functools.partial(_common_shape, model)
    else:
        groups = [group for prompts in sets for group in prompts.groups]
        shape_of = packing.choose_shapes(groups, model.step_tokens, model.mesh.shape[parallel.DATA])
    try:
        for prompts, title in zip(sets, titles or [""] * len(sets), strict=True):
            model.statistics.requested_prompts += prompts.num_prompts
            model.statistics.requested_tokens += prompts.num_tokens
            with progress.bar(prompts.num_prompts, title) as report:
                started = time.monotonic()
                states, num_read = _read_set(model, prompts, shape_of, cache, layers, report)
                yield Reading(states, num_read, time.monotonic() - started if num_read else 0.0)
    finally:
        if not repeated:
            model.execution.free_prefix()


def _read_set(
    model: lm.LanguageModel,
    prompts: layout.Prompts,
    shape_of: packing.ShapeOf,
    cache: cache_lib.AnyCache | None,
    layers: tuple[int, ...],
    report: progress.Progress,
) -> tuple[lm.States, int]:
    """Return the states of one set of prompts, and how many the model read. Process 0 alone looks into the cache and writes to it."""
    layers = tuple(sorted(layers))  # The order of the arrays of `States`.
    stops = model.config.state_width + 1 + model.config.width * np.arange(len(layers) + 1)
    if not prompts.num_prompts:
        return _placed(model, np.zeros((0, stops[-1]), np.float32), layers), 0
    identity = f"{FORMAT} states {model.fingerprint} {model.dtype} {model.deterministic}"
    if model.dtype != "float32":  # Other dtypes depend on the platform: CPUs compute in float32.
        identity += f" {model.platform}"
    if model.deterministic:  # Results are bitwise equal only for the same number of devices per copy of the weights.
        identity += f" {model.mesh.shape[parallel.MODEL]}"
    keys_U, first_U, order_N = np.unique(_keys(prompts, identity), return_index=True, return_inverse=True)
    report(prompts.num_prompts - len(first_U), 0)
    if not cache or not model.fingerprint:
        return model.run_pass(_select(prompts, first_U), shape_of, layers, order_N, report), len(first_U)
    # Each part has its own key, so jobs that request other layers can reuse it.
    parts = [(keys_U, slice(0, stops[0]))]
    for layer, start, stop in zip(layers, stops[:-1], stops[1:], strict=True):
        digests = [hashlib.sha256(key.tobytes() + str(layer).encode()).digest() for key in keys_U]
        parts.append((np.array(digests, cache_lib.KEY), slice(start, stop)))
    rows_UF, is_cached_PU = np.zeros((len(keys_U), stops[-1]), np.float32), []
    for keys, columns in parts:
        is_cached_U, rows_UF[:, columns] = _look_up(cache, keys, columns.stop - columns.start)
        is_cached_PU.append(is_cached_U)
    is_whole_U = np.all(is_cached_PU, 0)
    report(int(is_whole_U.sum()), 0)
    for chunk in _chunks(model, prompts, first_U, cache.is_durable):
        missing = chunk[~is_whole_U[chunk]]
        if missing.size:
            states = model.run_pass(_select(prompts, first_U[missing]), shape_of, layers, progress=report)
            leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(parallel.replicate(states))]
            read_nF = np.concatenate([leaf.reshape(len(missing), -1) for leaf in leaves], -1)
            for (keys, columns), is_cached_U in zip(parts, is_cached_PU, strict=True):
                is_new_n = ~is_cached_U[missing]
                rows_UF[missing[is_new_n], columns] = read_nF[is_new_n, columns]
                if is_new_n.any() and parallel.is_main():
                    cache.keep(keys[missing[is_new_n]], rows_UF[missing[is_new_n], columns])
    return _placed(model, rows_UF[order_N], layers), int(np.sum(~is_whole_U))


def _placed(model: lm.LanguageModel, rows_NF: np.ndarray, layers: Sequence[int]) -> lm.States:
    """Return the states that rows in host memory hold, split over the devices by row."""
    width = model.config.state_width
    hidden_NE, log_z_N, rest_NF = rows_NF[:, :width], rows_NF[:, width], rows_NF[:, width + 1 :]
    by_layer = dict(zip(layers, np.split(rest_NF, len(layers), 1), strict=True)) if layers else {}
    hidden_NE, log_z_N, by_layer = parallel.put_rows((hidden_NE, log_z_N, by_layer), model.mesh)
    return lm.States(hidden_NE, log_z_N, model.deterministic, by_layer)


def _look_up(cache: cache_lib.AnyCache, keys_U: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which prompts process 0 finds in the cache [U], and rows [U, `width`] that are zero where it finds none."""
    is_cached_U, rows_UF = np.zeros(len(keys_U), bool), np.zeros((len(keys_U), width), np.float32)
    if parallel.is_main():
        is_cached_U, found_nF = cache.find(keys_U, width)
        rows_UF[is_cached_U] = found_nF
    is_cached_U = parallel.broadcast_from_main(is_cached_U)
    return is_cached_U, np.array(parallel.broadcast_from_main(rows_UF)) if is_cached_U.any() else rows_UF


def _keys(prompts: layout.Prompts, identity: str) -> np.ndarray:
    """Return the SHA-256 of `identity` and each prompt's tokens, [N] (32 bytes each)."""
    keys_N = np.zeros(prompts.num_prompts, cache_lib.KEY)
    for group in prompts.groups:
        prefix_digest = hashlib.sha256(identity.encode() + b" " + np.asarray(group.prefix_P, np.int32).tobytes())
        for index, suffix in zip(group.index, group.suffixes, strict=True):
            digest = prefix_digest.copy()
            digest.update(np.asarray(suffix, np.int32).tobytes())
            keys_N[index] = digest.digest()
    return keys_N


def _chunks(
    model: lm.LanguageModel, prompts: layout.Prompts, first_U: np.ndarray, is_durable: bool
) -> Iterator[np.ndarray]:
    """Yield, per chunk, the positions in `first_U` of its prompts, in prompt order.

    Chunks depend on all prompts, not on those that are cached. Without a durable cache there is one chunk.
    """
    order = np.argsort(first_U)
    if not is_durable:
        yield order
        return
    lengths_N = np.zeros(prompts.num_prompts, np.int64)
    for group in prompts.groups:
        lengths_N[group.index] = [len(suffix) for suffix in group.suffixes]
    steps = _CHUNK_STEPS.get(model.platform, _CHUNK_STEPS_ON_ACCELERATORS)
    chunk_tokens = steps * model.step_tokens * model.mesh.shape[parallel.DATA]
    chunk_U = np.cumsum(lengths_N[first_U[order]]) // chunk_tokens
    yield from np.split(order, np.flatnonzero(np.diff(chunk_U)) + 1)


def _select(prompts: layout.Prompts, members: np.ndarray) -> layout.Prompts:
    """Return some of the prompts, numbered in the order of `members`."""
    place_N = np.full(prompts.num_prompts, -1)
    place_N[members] = np.arange(len(members))
    groups = []
    for group in prompts.groups:
        places = place_N[group.index]
        if (places >= 0).any():
            part = group.take(np.flatnonzero(places >= 0))
            groups.append(dataclasses.replace(part, index=places[places >= 0]))
    return dataclasses.replace(prompts, groups=tuple(groups), num_prompts=len(members))


def _common_shape(model: lm.LanguageModel, group: layout.PromptGroup) -> packing.PackShape:
    """Choose from few packings, so that calls of about the same size share their compiled programs."""
    shape = packing.choose_shape([group], model.step_tokens, model.mesh.shape[parallel.DATA])
    # The width of the longest suffix that a context holds after the group's prefix.
    room = rounding.round_up(model.context - len(group.prefix_P), 64)
    width = shape.width if shape.width == packing.ROW_WIDTH else min(rounding.next_power_of_two(shape.width), room)
    rows = min(rounding.next_power_of_two(shape.rows), max(1, model.step_tokens // width))
    outputs = packing.max_outputs(group, width, rows)
    outputs = rounding.round_up(outputs, max(32, rounding.next_power_of_two(outputs) // 8))
    return dataclasses.replace(shape, width=width, rows=rows, outputs=outputs)


def _after_demonstrations(prompts: layout.Prompts) -> layout.Prompts:
    """Move all tokens after the demonstrations into the suffixes, and separate suffixes that need wider rows.

    The prefix is then the same in every call, whatever else the prompts of one call share.
    """
    demonstrations_P = np.array(prompts.demonstrations, np.int32)
    groups = []
    for group in prompts.groups:
        shared = packing.num_shared(group.prefix_P, demonstrations_P)
        suffixes = tuple(np.concatenate([group.prefix_P[shared:], suffix]) for suffix in group.suffixes)
        whole = dataclasses.replace(group, prefix_P=group.prefix_P[:shared], suffixes=suffixes)
        is_wide_N = np.array([len(suffix) > packing.ROW_WIDTH for suffix in suffixes])
        groups += [whole.take(np.flatnonzero(is_wide_N == wide)) for wide in (False, True) if (is_wide_N == wide).any()]
    return dataclasses.replace(prompts, groups=tuple(groups))
