"""Read each distinct prompt once, skip cached prompts, and cache finished chunks.

A cache holds rows of float32 numbers by key: one row for the state of a prompt, and one for each requested block. The
key of a state is the SHA-256 of the prompt's tokens, the files of the model, and the options that change its numbers.
Batch, packing and, in float32, devices may change a state's last digits and are not part of its key. A restarted job
finds its finished chunks in the cache. Each chunk is packed independently, so that the resumed job gives bitwise the
same states.

In names of arrays, N counts prompts, U distinct prompts, and F the numbers of all parts of a prompt's row.
"""

import dataclasses
import functools
import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from knnprompt_jax.common import parallel, progress, rounding
from knnprompt_jax.inference import lm
from knnprompt_jax.inference.prompts import layout, packing
from knnprompt_jax.inference.states import cache as cache_lib

FORMAT = 3  # Version of cached rows: increase it whenever a pass computes different values.
_CHUNK_STEPS = {"cpu": 16}
_CHUNK_STEPS_ON_ACCELERATORS = 64


class PassResult(NamedTuple):
    """The states of prompts, the number of prompts that the model read for them, and its seconds."""

    states: lm.States
    num_read: int
    seconds: float


def read(
    model: lm.LanguageModel,
    prompts: layout.Prompts,
    cache: cache_lib.Cache | None = None,
    *,
    title: str = "",
    repeated: bool = False,
    blocks: tuple[int, ...] = (),
) -> lm.States:
    """Return the states of all prompts, in order; rows are split over every device if they divide evenly.

    Args:
        model: the model; its pass reads the prompts that are not cached.
        prompts: the prompts.
        cache: where states are looked up and kept; by default all prompts are read.
        title: the title of the progress bar.
        repeated: whether more calls with the same demonstrations follow. The prefix then stays in device memory, and
            calls of about the same size share their compiled programs, at the cost of a few percent of padding.
        blocks: the blocks, from 1, whose outputs are returned too; the pass computes all blocks in any case.

    Raises:
        UserError: a distribution is not finite, because weights are damaged or overflow.
    """
    [result] = read_sets(model, [prompts], cache, [title], repeated, blocks)
    return result.states


def read_sets(
    model: lm.LanguageModel,
    sets: Sequence[layout.Prompts],
    cache: cache_lib.Cache | None = None,
    titles: Sequence[str] = (),
    repeated: bool = False,
    blocks: tuple[int, ...] = (),
) -> Iterator[PassResult]:
    """Yield the states of each set of prompts.

    All sets share their pack shapes, and so the compiled programs. With `repeated`, each group chooses a common size.

    `titles` has one title per set. The other arguments are those of `read`.
    """
    if repeated:
        sets = [_shorten_prefixes(prompts) for prompts in sets]
        shape_of: packing.ShapeOf = functools.partial(_common_shape, model)
    else:
        groups = [group for prompts in sets for group in prompts.groups]
        shape_of = packing.choose_shapes(groups, model.step_tokens, model.mesh.shape[parallel.DATA])
    try:
        for prompts, title in zip(sets, titles or [""] * len(sets), strict=True):
            with progress.bar(prompts.num_prompts, title) as report:
                started = time.monotonic()
                states, num_read = _read_set(model, prompts, shape_of, cache, blocks, report)
                yield PassResult(states, num_read, time.monotonic() - started if num_read else 0.0)
    finally:
        if not repeated:
            model.free_prefix()


def _read_set(
    model: lm.LanguageModel,
    prompts: layout.Prompts,
    shape_of: packing.ShapeOf,
    cache: cache_lib.Cache | None,
    blocks: tuple[int, ...],
    report: progress.Progress,
) -> tuple[lm.States, int]:
    """Return the states of one set of prompts, and the number of prompts that the model read."""
    blocks = tuple(sorted(blocks))  # Their order in a row.
    if not prompts.num_prompts:
        return _from_rows(model, np.zeros((0, sum(_widths(model, blocks))), np.float32), blocks), 0
    keys_N = _keys(prompts, _model_key(model))
    # Each distinct prompt's key and first index, and each prompt's index among the distinct prompts.
    keys_U, first_U, distinct_index_N = np.unique(keys_N, return_index=True, return_inverse=True)
    model.statistics.requested_prompts += len(first_U)
    report(prompts.num_prompts - len(first_U), 0)
    if not cache or not model.fingerprint:
        states = model.run_pass(_select(prompts, first_U), shape_of, blocks, distinct_index_N, report)
        return states, len(first_U)
    rows_UF, parts = _look_up(cache, keys_U, blocks, _widths(model, blocks))
    is_missing_U = ~np.all([part.is_cached_U for part in parts], 0)
    report(int(np.sum(~is_missing_U)), 0)
    for chunk in _chunks(model, prompts, first_U, cache.is_durable):
        missing = chunk[is_missing_U[chunk]]
        if missing.size:
            states = model.run_pass(_select(prompts, first_U[missing]), shape_of, blocks, progress=report)
            _keep(cache, parts, rows_UF, missing, states)
    return _from_rows(model, rows_UF[distinct_index_N], blocks), int(is_missing_U.sum())


@dataclasses.dataclass(frozen=True)
class _Part:
    """A part of each prompt's row with keys of its own, so that jobs which request other blocks can reuse it.

    Attributes:
        keys_U: the keys of the prompts.
        columns: the columns of the part in a row.
        is_cached_U: whether the cache had the part before the pass.
    """

    keys_U: np.ndarray
    columns: slice
    is_cached_U: np.ndarray


def _widths(model: lm.LanguageModel, blocks: Sequence[int]) -> list[int]:
    """Return the numbers of columns of a row: the state with its log-partition, then each block."""
    return [model.config.state_width + 1] + [model.config.width] * len(blocks)


def _model_key(model: lm.LanguageModel) -> str:
    """Return everything that a state depends on, except the tokens of its prompt."""
    key = f"{FORMAT} states {model.fingerprint} {model.dtype} {model.deterministic}"
    if model.dtype != "float32":  # Other dtypes depend on the platform: CPUs compute in float32.
        key += f" {model.platform}"
    if model.deterministic:  # Results are bitwise equal only for the same number of devices per copy of the weights.
        key += f" {model.mesh.shape[parallel.MODEL]}"
    return key


def _look_up(
    cache: cache_lib.Cache, keys_U: np.ndarray, blocks: Sequence[int], widths: Sequence[int]
) -> tuple[np.ndarray, list[_Part]]:
    """Return the rows [U, F] of all prompts, zero where the cache has none, and their parts."""
    rows_UF = np.zeros((len(keys_U), sum(widths)), np.float32)
    parts = []
    start = 0
    for block, width in zip((None, *blocks), widths, strict=True):
        keys = keys_U if block is None else _block_keys(keys_U, block)
        columns = slice(start, start + width)
        is_cached_U, rows_UF[:, columns] = _look_up_in_main(cache, keys, width)
        parts.append(_Part(keys, columns, is_cached_U))
        start += width
    return rows_UF, parts


def _block_keys(keys_U: np.ndarray, block: int) -> np.ndarray:
    digests = [hashlib.sha256(key.tobytes() + str(block).encode()).digest() for key in keys_U]
    return np.array(digests, cache_lib.KEY_DTYPE)


def _keep(
    cache: cache_lib.Cache, parts: Sequence[_Part], rows_UF: np.ndarray, members: np.ndarray, states: lm.States
) -> None:
    """Write the states of the prompts `members` into their rows; process 0 adds the parts that the cache lacks."""
    read_nF = _to_rows(states)
    for part in parts:
        is_new_n = ~part.is_cached_U[members]
        new = members[is_new_n]
        rows_UF[new, part.columns] = read_nF[is_new_n, part.columns]
        if new.size and parallel.is_main():
            cache.keep(part.keys_U[new], rows_UF[new, part.columns])


def _to_rows(states: lm.States) -> np.ndarray:
    """Return the rows of states in host memory, with the columns of `_widths`."""
    states = parallel.replicate(states)
    parts = [states.hidden_NE, states.log_z_N[:, None], *(states.blocks[block] for block in sorted(states.blocks))]
    return np.concatenate([np.asarray(part) for part in parts], -1)


def _from_rows(model: lm.LanguageModel, rows_NF: np.ndarray, blocks: Sequence[int]) -> lm.States:
    """Return the states that `_to_rows` put into rows, split over the devices by row."""
    width = model.config.state_width
    hidden_NE = rows_NF[:, :width]
    log_z_N = rows_NF[:, width]
    rest_NF = rows_NF[:, width + 1 :]
    by_block = dict(zip(blocks, np.split(rest_NF, len(blocks), 1), strict=True)) if blocks else {}
    hidden_NE, log_z_N, by_block = parallel.put_rows((hidden_NE, log_z_N, by_block), model.mesh)
    return lm.States(hidden_NE, log_z_N, model.deterministic, by_block)


def _look_up_in_main(cache: cache_lib.Cache, keys_U: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which prompts process 0 finds in the cache [U], and rows [U, `width`], zero where it finds none."""
    is_cached_U = np.zeros(len(keys_U), bool)
    rows_UF = np.zeros((len(keys_U), width), np.float32)
    if parallel.is_main():
        is_cached_U, rows_UF = cache.find(keys_U, width)
    is_cached_U = parallel.broadcast_from_main(is_cached_U)
    return is_cached_U, np.array(parallel.broadcast_from_main(rows_UF)) if is_cached_U.any() else rows_UF


def _keys(prompts: layout.Prompts, model_key: str) -> np.ndarray:
    """Return the SHA-256 of `model_key` and each prompt's tokens, [N] (32 bytes each)."""
    keys_N = np.zeros(prompts.num_prompts, cache_lib.KEY_DTYPE)
    for group in prompts.groups:
        prefix_digest = hashlib.sha256(model_key.encode() + b" " + np.asarray(group.prefix_P, np.int32).tobytes())
        for number, suffix in zip(group.number_N, group.suffixes, strict=True):
            digest = prefix_digest.copy()
            digest.update(np.asarray(suffix, np.int32).tobytes())
            keys_N[number] = digest.digest()
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
        lengths_N[group.number_N] = [len(suffix) for suffix in group.suffixes]
    steps = _CHUNK_STEPS.get(model.platform, _CHUNK_STEPS_ON_ACCELERATORS)
    chunk_tokens = steps * model.step_tokens * model.mesh.shape[parallel.DATA]
    chunk_U = np.cumsum(lengths_N[first_U[order]]) // chunk_tokens
    yield from np.split(order, np.flatnonzero(np.diff(chunk_U)) + 1)


def _select(prompts: layout.Prompts, members: np.ndarray) -> layout.Prompts:
    """Return some of the prompts, numbered in the order of `members`."""
    number_N = np.full(prompts.num_prompts, -1)
    number_N[members] = np.arange(len(members))
    groups = []
    for group in prompts.groups:
        numbers = number_N[group.number_N]
        is_member = numbers >= 0
        if is_member.any():
            part = group.take(np.flatnonzero(is_member))
            groups.append(dataclasses.replace(part, number_N=numbers[is_member]))
    return layout.Prompts(tuple(groups), len(members), demonstration_tokens=prompts.demonstration_tokens)


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


def _shorten_prefixes(prompts: layout.Prompts) -> layout.Prompts:
    """Cut each prefix to its demonstrations, and separate suffixes that need wider rows.

    Later tokens of the prefix move into the suffixes. The prefix is then the same in every call, whatever else the
    prompts of one call share.
    """
    demonstrations_P = np.array(prompts.demonstration_tokens, np.int32)
    groups = []
    for group in prompts.groups:
        shared = packing.num_shared(group.prefix_P, demonstrations_P)
        suffixes = tuple(np.concatenate([group.prefix_P[shared:], suffix]) for suffix in group.suffixes)
        whole = dataclasses.replace(group, prefix_P=group.prefix_P[:shared], suffixes=suffixes)
        is_wide_N = np.array([len(suffix) > packing.ROW_WIDTH for suffix in suffixes])
        parts = [whole.take(np.flatnonzero(~is_wide_N)), whole.take(np.flatnonzero(is_wide_N))]
        groups += [part for part in parts if part.suffixes]
    return dataclasses.replace(prompts, groups=tuple(groups))
