"""Read each distinct prompt once, skip cached prompts, and cache finished chunks.

Prompts flow through a stream of chunks: a thread renders and tokenizes the next blocks of prompts, this thread looks
them up and packs them, the devices compute, and another thread copies and caches the states of the chunks before. No
stage is more than a few blocks ahead of the next one.

A cache holds rows of float32 numbers by key: one row for the state of a prompt, and one for each requested block. The
key of a state is the SHA-256 of the prompt's tokens, the files of the model, and the options that change its numbers.
Batch, packing and, in float32, devices may change a state's last digits and are not part of its key. A restarted job
finds its finished chunks in the cache. Each chunk is packed independently, so that the resumed job gives bitwise the
same states.

In names of arrays, N counts prompts, U distinct prompts, n the prompts of a chunk, and F the numbers of all parts of a
prompt's row.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from knnprompt_jax.common import parallel, progress, rounding
from knnprompt_jax.inference import lm
from knnprompt_jax.inference.prompts import layout, packing
from knnprompt_jax.inference.states import cache as cache_lib

FORMAT = 3  # Version of cached rows: increase it whenever a pass computes different values.
_CHUNK_STEPS = {"cpu": 16}
_CHUNK_STEPS_ON_ACCELERATORS = 64
_BLOCKS_AHEAD = 2  # Tokenized blocks that wait for the devices, per set.
_CHUNKS_AHEAD = 1  # Chunks that are queued on accelerators while one is computed.


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
        UserError: a prompt has no tokens or one outside the vocabulary, or a distribution is not finite, because
            weights are damaged or overflow.
    """
    [result] = read_sets(model, [prompts], cache, [title], repeated, blocks)
    return result.states


def read_sets(
    model: lm.LanguageModel,
    sets: Iterable[layout.Prompts],
    cache: cache_lib.Cache | None = None,
    titles: Iterable[str] = (),
    repeated: bool = False,
    blocks: tuple[int, ...] = (),
) -> Iterator[PassResult]:
    """Yield the states of each set of prompts. On accelerators, the next set's first chunk is queued before.

    Sets share their pack shapes, and so the compiled programs, if they have about the same size.

    Args:
        sets: the sets, which may be built one after the other.
        titles: one title per set.
        repeated: as in `read`, like the other arguments.
    """
    ahead = 0 if model.platform == "cpu" else _CHUNKS_AHEAD
    queued: collections.deque[tuple[_SetReading, _Queued | None]] = collections.deque()
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as keeper:
            job = _Job(model, cache, tuple(sorted(blocks)), repeated, _Shapes(model, repeated), keeper)
            for reading, chunk in _chunks(job, sets, titles):
                queued.append((reading, chunk and reading.queue(chunk)))
                while len(queued) > ahead:
                    yield from _finish(*queued.popleft())
            while queued:
                yield from _finish(*queued.popleft())
    finally:
        if not repeated:
            model.free_prefix()


class _Job(NamedTuple):
    """The model, the arguments of `read_sets`, and the thread that copies and caches states."""

    model: lm.LanguageModel
    cache: cache_lib.Cache | None
    blocks: tuple[int, ...]
    repeated: bool
    shapes: "_Shapes"
    keeper: concurrent.futures.Executor

    @property
    def chunk_tokens(self) -> int:
        """The tokens of a chunk; a cache on disk gets smaller chunks on CPUs, so that less is lost with a process."""
        steps = _CHUNK_STEPS_ON_ACCELERATORS
        if self.cache and self.cache.is_durable:
            steps = _CHUNK_STEPS.get(self.model.platform, steps)
        return steps * self.model.step_tokens * self.model.mesh.shape[parallel.DATA]

    @property
    def widths(self) -> list[int]:
        """The numbers of columns of a row: the state with its log-partition, then each block."""
        config = self.model.config
        return [config.state_width + 1] + [config.width] * len(self.blocks)


class _Chunk(NamedTuple):
    """Consecutive prompts of a set: their groups, their numbers in the set, in order, and their keys."""

    groups: tuple[layout.PromptGroup, ...]
    number_n: np.ndarray
    keys_n: np.ndarray


class _Queued(NamedTuple):
    """A chunk whose pass is queued.

    Attributes:
        read_pass: the pass over the prompts that are not cached; None if there are none.
        members: the rows of these prompts.
        parts: the parts of the rows of all new prompts of the chunk, which begin at row `first`.
        num_found: the number of prompts of the chunk that are cached or occurred before.
    """

    read_pass: lm.QueuedPass | None
    members: np.ndarray
    parts: "list[_Part]"
    first: int
    num_found: int


def _chunks(
    job: _Job, sets: Iterable[layout.Prompts], titles: Iterable[str]
) -> Iterator[tuple["_SetReading", _Chunk | None]]:
    """Yield the chunks of each set, and None after its last; a set is begun before the previous one ends."""
    waiting: collections.deque[_SetReading] = collections.deque()
    for prompts, title in zip(sets, itertools.chain(titles, itertools.repeat("")), strict=False):
        waiting.append(_SetReading(job, prompts, title))
        if len(waiting) > 1:
            yield from waiting.popleft().chunks()
    for reading in waiting:
        yield from reading.chunks()


def _finish(reading: "_SetReading", queued: _Queued | None) -> Iterator[PassResult]:
    """Finish a chunk, or yield the result of a set if its last chunk is finished."""
    if queued:
        reading.finish(queued)
    else:
        yield reading.result()


class _SetReading:
    """The reading of one set of prompts."""

    def __init__(self, job: _Job, prompts: layout.Prompts, title: str):
        self._job = job
        self._title = title
        self._chunks = parallel.ahead(_build_chunks(job, prompts), _BLOCKS_AHEAD)
        self._rows_UF = np.zeros((prompts.num_prompts, sum(job.widths)), np.float32)
        self._row_N = np.zeros(prompts.num_prompts, int)  # The row of each prompt in `_rows_UF`.
        self._row_by_key: dict[bytes, int] = {}
        self._num_read = 0
        self._started = 0.0
        self._keeping: concurrent.futures.Future | None = None
        self._stack = contextlib.ExitStack()

    def chunks(self) -> Iterator[tuple["_SetReading", _Chunk | None]]:
        """Yield the chunks, then None."""
        for chunk in self._chunks:
            yield self, chunk
        yield self, None

    @functools.cached_property
    def _report(self) -> progress.Progress:
        """The function that advances the bar, which appears at its first use: bars do not overlap."""
        return self._stack.enter_context(progress.bar(len(self._row_N), self._title))

    def queue(self, chunk: _Chunk) -> _Queued:
        """Look up the chunk's prompts, and queue a pass over those that are missing."""
        job = self._job
        self._started = self._started or time.monotonic()
        job.shapes.add(chunk.groups, is_whole=len(chunk.number_n) == len(self._row_N))
        first = len(self._row_by_key)
        row_n = [self._row_by_key.setdefault(key.tobytes(), len(self._row_by_key)) for key in chunk.keys_n]
        self._row_N[chunk.number_n] = row_n
        _, position_u = np.unique(row_n, return_index=True)
        position_u = position_u[np.array(row_n)[position_u] >= first]
        job.model.statistics.requested_prompts += len(position_u)
        rows_uF, parts = _look_up(job, chunk.keys_n[position_u])
        self._rows_UF[first : first + len(rows_uF)] = rows_uF
        [missing] = np.nonzero(~np.all([part.is_cached_u for part in parts], 0))
        groups = _select(chunk.groups, chunk.number_n[position_u[missing]], len(self._row_N))
        report = lambda *counts: self._report(*counts)  # noqa: E731
        read_pass = job.model.queue_pass(groups, job.shapes.of, job.blocks, report) if groups else None
        return _Queued(read_pass, missing, parts, first, len(row_n) - len(missing))

    def finish(self, queued: _Queued) -> None:
        """Wait for a chunk's pass, and start to copy and cache its rows."""
        self._report(queued.num_found, 0)
        if not queued.read_pass:
            return
        queued.read_pass.wait()
        self._num_read += len(queued.members)
        if self._keeping:
            self._keeping.result()
        self._keeping = self._job.keeper.submit(self._keep, queued.read_pass, queued)

    def _keep(self, read_pass: lm.QueuedPass, queued: _Queued) -> None:
        """Write the states of a pass into their rows; process 0 adds the parts that the cache lacks."""
        rows_mF = read_pass.rows()
        for part in queued.parts:
            is_new_m = ~part.is_cached_u[queued.members]
            rows_mf = rows_mF[is_new_m, part.columns]
            new_u = queued.members[is_new_m]
            self._rows_UF[queued.first + new_u, part.columns] = rows_mf
            if self._job.cache and self._job.model.fingerprint and new_u.size and parallel.is_main():
                self._job.cache.keep(part.keys_u[new_u], rows_mf)

    def result(self) -> PassResult:
        """Return the states of all prompts."""
        if self._keeping:
            self._keeping.result()
        self._stack.close()
        seconds = time.monotonic() - self._started if self._num_read else 0.0
        self._job.model.statistics.seconds += seconds
        is_whole = len(self._row_by_key) == len(self._row_N) and (np.diff(self._row_N) == 1).all()
        rows_NF = self._rows_UF if is_whole else self._rows_UF[self._row_N]
        return PassResult(_to_states(self._job, rows_NF), self._num_read, seconds)


class _Shapes:
    """The pack shapes of a job: few, because each takes a compilation.

    Groups with a prefix and groups without have shapes of their own; with `repeated`, wide rows too. The first chunk
    determines a shape. Only a chunk that does not fit, or is twice as large, replaces it.
    """

    def __init__(self, model: lm.LanguageModel, repeated: bool):
        self._model = model
        self._repeated = repeated
        self._added: list[tuple[Sequence[layout.PromptGroup], bool]] = []
        self._shapes: dict[tuple[bool, bool], packing.PackShape] = {}
        self._num_tokens: dict[tuple[bool, bool], int] = {}  # Those that each shape was chosen for.

    def add(self, groups: Sequence[layout.PromptGroup], is_whole: bool) -> None:
        """Choose shapes for a chunk, `is_whole` if it has all prompts of its set, before the next call of `of`.

        Shapes do not depend on what the cache holds, so that a resumed job has the same.
        """
        self._added.append((groups, is_whole))

    def of(self, group: layout.PromptGroup) -> packing.PackShape:
        """Return the shape of a group of an added chunk, or of a part of it."""
        if self._model.deterministic:
            # Half the tokens per step, so that a few texts do not cost as much as many.
            return packing.shape_alone(group, self._model.default_step_tokens // 2)
        for groups, is_whole in self._added:
            for kind in {self._kind(each) for each in groups}:
                self._choose(kind, [each for each in groups if self._kind(each) == kind], is_whole)
        self._added.clear()
        return self._shapes[self._kind(group)]

    def _kind(self, group: layout.PromptGroup) -> tuple[bool, bool]:
        return bool(len(group.prefix_P)), self._repeated and group.longest > packing.ROW_WIDTH

    def _choose(self, kind: tuple[bool, bool], groups: Sequence[layout.PromptGroup], is_whole: bool) -> None:
        old = self._shapes.get(kind)
        num_tokens = sum(len(group.suffixes.tokens_T) for group in groups)
        longest = max(group.longest for group in groups)
        prefix = max(len(group.prefix_P) for group in groups)
        if old and longest <= old.width and prefix <= old.prefix:
            is_full = (old.rows + 1) * old.width > self._model.step_tokens
            if is_full or num_tokens <= 2 * self._num_tokens[kind]:
                return
        choose = self._choose_common if self._repeated else packing.choose_shape
        shape = choose(groups, self._model.step_tokens, self._model.mesh.shape[parallel.DATA])
        if not is_whole:  # Other chunks may have more outputs in a step.
            shape = dataclasses.replace(shape, outputs=rounding.round_up(shape.outputs * 9 // 8, 8))
        self._shapes[kind] = shape
        self._num_tokens[kind] = num_tokens

    def _choose_common(self, groups: Sequence[layout.PromptGroup], step_tokens: int, shards: int) -> packing.PackShape:
        """Choose from few packings, so that calls of about the same size share their compiled programs."""
        shape = packing.choose_shape(groups, step_tokens, shards)
        # The width of the longest suffix that a context holds after the prefix.
        room = rounding.round_up(self._model.context - min(len(group.prefix_P) for group in groups), 64)
        width = shape.width if shape.width == packing.ROW_WIDTH else min(rounding.next_power_of_two(shape.width), room)
        rows = min(rounding.next_power_of_two(shape.rows), max(1, step_tokens // width))
        outputs = max(packing.max_outputs(group, width, rows) for group in groups)
        outputs = rounding.round_up(outputs, max(32, rounding.next_power_of_two(outputs) // 8))
        return dataclasses.replace(shape, width=width, rows=rows, outputs=outputs)


@dataclasses.dataclass(frozen=True)
class _Part:
    """A part of each row with keys of its own, so that jobs which request other blocks can reuse it.

    Attributes:
        keys_u: the keys of a chunk's new prompts.
        columns: the columns of the part in a row.
        is_cached_u: whether the cache had the part before the pass.
    """

    keys_u: np.ndarray
    columns: slice
    is_cached_u: np.ndarray


def _build_chunks(job: _Job, prompts: layout.Prompts) -> Iterator[_Chunk]:
    """Yield the chunks of a set, in order."""
    model_key = _model_key(job.model)
    demonstrations_P = np.array(prompts.demonstration_tokens, np.int32)
    for groups in _cut(prompts, job.chunk_tokens):
        if job.model.deterministic:
            groups = packing.arrange_alone(groups, demonstrations_P)
        elif job.repeated:
            groups = _separate_wide([_shorten_prefix(group, demonstrations_P) for group in groups])
        number_n = np.concatenate([group.number_N for group in groups])
        order_n = np.argsort(number_n)
        yield _Chunk(tuple(groups), number_n[order_n], _keys(groups, model_key)[order_n])


def _cut(prompts: layout.Prompts, chunk_tokens: int) -> Iterator[Sequence[layout.PromptGroup]]:
    """Yield the groups of chunks of at most about `chunk_tokens` tokens: parts of a block, or several blocks."""
    waiting: list[layout.PromptGroup] = []
    num_waiting = 0
    for part in itertools.chain.from_iterable(_split(block.groups, chunk_tokens) for block in prompts.blocks()):
        num_tokens = sum(len(group.suffixes.tokens_T) for group in part)
        if waiting and num_waiting + num_tokens > chunk_tokens:
            yield layout.join_groups(waiting)
            waiting = []
            num_waiting = 0
        waiting += part
        num_waiting += num_tokens
    if waiting:
        yield layout.join_groups(waiting)


def _split(groups: Sequence[layout.PromptGroup], max_tokens: int) -> list[list[layout.PromptGroup]]:
    """Split prompts, in order, into parts of about equal numbers of tokens, at most about `max_tokens`."""
    number_n = np.concatenate([group.number_N for group in groups])
    lengths_n = np.concatenate([group.suffixes.lengths_N for group in groups])
    order_n = np.argsort(number_n)
    ends_n = np.cumsum(lengths_n[order_n])
    num_parts = math.ceil(ends_n[-1] / max_tokens)
    part_n = np.empty_like(order_n)
    part_n[order_n] = (ends_n - 1) * num_parts // ends_n[-1]
    parts: list[list[layout.PromptGroup]] = [[] for _ in range(num_parts)]
    for group, part_of_N in zip(
        groups, np.split(part_n, np.cumsum([len(group.number_N) for group in groups])[:-1]), strict=True
    ):
        for part in np.unique(part_of_N):
            parts[part].append(group.take(np.flatnonzero(part_of_N == part)))
    return parts


def _shorten_prefix(group: layout.PromptGroup, demonstrations_P: np.ndarray) -> layout.PromptGroup:
    """Cut a prefix to the demonstrations: the same in every call, whatever else the prompts of one call share."""
    return group.with_prefix(packing.num_shared(group.prefix_P, demonstrations_P))


def _separate_wide(groups: Sequence[layout.PromptGroup]) -> list[layout.PromptGroup]:
    """Separate the suffixes that need wider rows."""
    parts = []
    for group in groups:
        is_wide_N = group.suffixes.lengths_N > packing.ROW_WIDTH
        parts += [group.take(np.flatnonzero(is_wide_N == wide)) for wide in (False, True) if (is_wide_N == wide).any()]
    return parts


def _keys(groups: Sequence[layout.PromptGroup], model_key: str) -> np.ndarray:
    """Return the SHA-256 of `model_key` and each prompt's tokens (32 bytes each), group by group."""
    digests = []
    for group in groups:
        prefix_digest = hashlib.sha256(model_key.encode() + b" " + np.asarray(group.prefix_P, np.int32).tobytes())
        content = group.suffixes.tokens_T.tobytes()
        for start, end in itertools.pairwise((4 * group.suffixes.offsets_N).tolist()):
            digest = prefix_digest.copy()
            digest.update(content[start:end])
            digests.append(digest.digest())
    return np.array(digests, cache_lib.KEY_DTYPE)


def _select(groups: Sequence[layout.PromptGroup], numbers: np.ndarray, num_prompts: int) -> list[layout.PromptGroup]:
    """Return the prompts with some numbers, numbered in their order."""
    position_N = np.full(num_prompts, -1)
    position_N[numbers] = np.arange(len(numbers))
    parts = [(group, position_N[group.number_N]) for group in groups]
    return [
        dataclasses.replace(group.take(np.flatnonzero(position_n >= 0)), number_N=position_n[position_n >= 0])
        for group, position_n in parts
        if (position_n >= 0).any()
    ]


def _model_key(model: lm.LanguageModel) -> str:
    """Return everything that a state depends on, except the tokens of its prompt."""
    key = f"{FORMAT} states {model.fingerprint} {model.dtype} {model.deterministic}"
    if model.dtype != "float32":  # Other dtypes depend on the platform: CPUs compute in float32.
        key += f" {model.platform}"
    if model.deterministic:  # Results are bitwise equal only for the same number of devices per copy of the weights.
        key += f" {model.mesh.shape[parallel.MODEL]}"
    return key


def _look_up(job: _Job, keys_u: np.ndarray) -> tuple[np.ndarray, list[_Part]]:
    """Return the rows [u, F] of new prompts, zero where the cache has none, and their parts."""
    rows_uF = np.zeros((len(keys_u), sum(job.widths)), np.float32)
    parts = []
    start = 0
    for block, width in zip((None, *job.blocks), job.widths, strict=True):
        keys = keys_u if block is None else _block_keys(keys_u, block)
        columns = slice(start, start + width)
        is_cached_u = np.zeros(len(keys), bool)
        if job.cache and job.model.fingerprint:
            is_cached_u, rows_uF[:, columns] = _look_up_in_main(job.cache, keys, width)
        parts.append(_Part(keys, columns, is_cached_u))
        start += width
    return rows_uF, parts


def _block_keys(keys_u: np.ndarray, block: int) -> np.ndarray:
    digests = [hashlib.sha256(key.tobytes() + str(block).encode()).digest() for key in keys_u]
    return np.array(digests, cache_lib.KEY_DTYPE)


def _look_up_in_main(cache: cache_lib.Cache, keys_u: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which prompts process 0 finds in the cache [u], and rows [u, `width`], zero where it finds none."""
    is_cached_u = np.zeros(len(keys_u), bool)
    rows_uF = np.zeros((len(keys_u), width), np.float32)
    if parallel.is_main():
        is_cached_u, rows_uF = cache.find(keys_u, width)
    is_cached_u = parallel.broadcast_from_main(is_cached_u)
    return is_cached_u, np.array(parallel.broadcast_from_main(rows_uF)) if is_cached_u.any() else rows_uF


def _to_states(job: _Job, rows_NF: np.ndarray) -> lm.States:
    """Return the states of rows in host memory, split over the devices by row."""
    hidden_NE, log_z_N1, *by_block = np.split(rows_NF, np.cumsum([job.widths[0] - 1, 1, *job.widths[1:]])[:-1], 1)
    arrays = (hidden_NE, log_z_N1[:, 0], dict(zip(job.blocks, by_block, strict=True)))
    hidden_NE, log_z_N, by_block = parallel.put_rows(arrays, job.model.mesh)
    return lm.States(hidden_NE, log_z_N, job.model.deterministic, by_block)
