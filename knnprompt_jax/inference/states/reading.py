"""Read each distinct prompt once, skip cached prompts, and cache finished chunks.

Prompts flow through a stream of chunks. A thread renders and tokenizes the next blocks of prompts. This thread looks
them up and packs them for the devices. Another thread copies and caches the states of the chunks before. No stage is
more than a few blocks ahead of the next one.

A cache holds rows of float32 numbers by key: one row for the state of a prompt, and one for each requested output of a
block. The key of a state is the SHA-256 of the prompt's tokens, the files of the model, and the options that change its
numbers. Batch, packing and, in float32, devices may change a state's last digits and are not part of its key. A
restarted job finds its finished chunks in the cache. Each chunk is packed independently, so that the resumed job gives
bitwise the same states.

In names of arrays, N counts prompts, U distinct prompts, n the prompts of a chunk, and F the numbers of a prompt's row.
"""

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import itertools
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from knnprompt_jax.common import parallel, progress
from knnprompt_jax.inference import lm
from knnprompt_jax.inference.prompts import layout
from knnprompt_jax.inference.states import cache as cache_lib
from knnprompt_jax.inference.states import chunks as chunks_lib
from knnprompt_jax.inference.states import pack_shapes

_CHUNK_STEPS = 64
_CHUNK_STEPS_ON_CPU = 16
_FIRST_CHUNK_STEPS = 4  # On accelerators: one call.
_CHUNKS_BUILT_AHEAD = 2  # Tokenized chunks of a set that wait for the devices.
_CHUNKS_AHEAD = 1  # Chunks that are queued on accelerators while one is computed.


class PassResult(NamedTuple):
    """The states of prompts, the number of prompts that the model read for them, and the seconds of reading.

    What devices compute while the set before is in use takes no seconds.
    """

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
    activations: tuple[lm.Activation, ...] = (),
) -> lm.States:
    """Return the states of all prompts, in order; rows are split over every device if they divide evenly.

    Args:
        model: the model; its pass reads the prompts that are not cached.
        prompts: the prompts.
        cache: where states are looked up and kept; by default all prompts are read.
        title: the title of the progress bar.
        repeated: whether more calls with the same demonstrations follow. The prefix then stays in device memory, and
            calls of about the same size share their compiled programs, at the cost of a few percent of padding.
        activations: those that are returned too; the pass computes all blocks in any case.

    Raises:
        UserError: a prompt has no tokens or one outside the vocabulary, or a distribution is not finite, because
            weights are damaged or overflow.
    """
    [result] = read_sets(model, [prompts], cache, [title], repeated, [activations])
    return result.states


def read_sets(
    model: lm.LanguageModel,
    sets: Iterable[layout.Prompts],
    cache: cache_lib.Cache | None = None,
    titles: Iterable[str] = (),
    repeated: bool = False,
    activations: Iterable[tuple[lm.Activation, ...]] = (),
) -> Iterator[PassResult]:
    """Yield the states of each set of prompts.

    On accelerators, the first chunk of the next set is queued before the last chunk of this set is finished.

    Sets share their pack shapes, and so the compiled programs, if they have about the same size.

    Args:
        sets: the sets, which may be built one after the other.
        titles: one title per set.
        repeated: as in `read`, like the other arguments.
        activations: the requested activations, one tuple per set.
    """
    ahead = 0 if model.platform == "cpu" else _CHUNKS_AHEAD
    with contextlib.ExitStack() as stack:
        if not repeated:
            stack.callback(model.free_prefix)
        keeper = stack.enter_context(concurrent.futures.ThreadPoolExecutor(1))
        shapes = pack_shapes.PackShapes(model, repeated)
        job = _Job(model, cache, repeated, shapes, keeper, stack)
        titles = itertools.chain(titles, itertools.repeat(""))
        activations = itertools.chain(activations, itertools.repeat(()))
        described = zip(sets, titles, activations, strict=False)
        readings = parallel.delayed((_SetReading(job, *description) for description in described), ahead)
        queued = ((reading, chunk) for reading in readings for chunk in reading.queue_all())
        for reading, queued_chunk in parallel.delayed(queued, ahead):
            if queued_chunk:
                reading.finish(queued_chunk)
            else:
                yield reading.result()


class _Job(NamedTuple):
    """The model, the arguments of `read_sets`, the thread that copies and caches states, and the open bars."""

    model: lm.LanguageModel
    cache: cache_lib.Cache | None
    repeated: bool
    shapes: pack_shapes.PackShapes
    keeper: concurrent.futures.Executor
    bars: contextlib.ExitStack

    @property
    def chunk_tokens(self) -> tuple[int, int]:
        """The tokens of the first chunk and the maximum.

        A cache on disk gets smaller chunks on CPUs, so that less is lost with a process.
        """
        first = maximum = _CHUNK_STEPS
        if self.model.platform != "cpu":
            first = _FIRST_CHUNK_STEPS
        elif self.cache and self.cache.is_durable:
            first = maximum = _CHUNK_STEPS_ON_CPU
        step_tokens = self.model.step_tokens * self.model.mesh.shape[parallel.DATA]
        return int(first * step_tokens), int(maximum * step_tokens)


class _Queued(NamedTuple):
    """A chunk whose pass is queued.

    Attributes:
        read_pass: the pass over the prompts that are not cached; None if there are none.
        missing_u: the indices of these prompts, among the chunk's new prompts.
        segments: the segments of the rows of all new prompts of the chunk, which begin at row `first_row`.
        num_skipped: the number of prompts of the chunk that are cached or equal an earlier prompt.
    """

    read_pass: lm.QueuedPass | None
    missing_u: np.ndarray
    segments: "list[_Segment]"
    first_row: int
    num_skipped: int


class _SetReading:
    """The reading of one set of prompts, whose first chunks are built at once."""

    def __init__(self, job: _Job, prompts: layout.Prompts, title: str, activations: tuple[lm.Activation, ...]):
        self._job = job
        self._title = title
        self._activations = tuple(sorted(activations))
        # The prefix must end with the demonstrations: a mean counts all tokens after it.
        short_prefixes = job.repeated or any(output.is_mean for output in activations)
        self._chunks = parallel.ahead(
            chunks_lib.build(job.model, prompts, job.chunk_tokens, short_prefixes), _CHUNKS_BUILT_AHEAD
        )
        config = job.model.config
        # The numbers of columns of a row: the state with its log-partition, then each output of a block.
        self._widths = [config.state_width + 1] + [config.width] * len(activations)
        self._rows_UF = np.zeros((prompts.num_prompts, sum(self._widths)), np.float32)  # Room for N; U are used.
        self._row_N = np.zeros(prompts.num_prompts, int)  # The row of each prompt in `_rows_UF`.
        self._row_by_key: dict[bytes, int] = {}
        self._num_read = 0
        self._seconds = 0.0  # Without those between the calls, which belong to the user of the set before.
        self._keeping: concurrent.futures.Future | None = None
        self._bar = job.bars.enter_context(contextlib.ExitStack())
        self._report: progress.Progress | None = None

    def queue_all(self) -> Iterator[_Queued | None]:
        """Queue one chunk after the other; the last item is None."""
        while True:
            with self._timed():
                chunk = next(self._chunks, None)
                queued = chunk and self._queue(chunk)
            yield queued
            if chunk is None:
                return

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.monotonic()
        yield
        self._seconds += time.monotonic() - started

    def _queue(self, chunk: chunks_lib.Chunk) -> _Queued:
        """Look up the chunk's prompts, and queue a pass over those that are missing."""
        job = self._job
        job.shapes.start(chunk.groups, is_whole=len(chunk.number_n) == len(self._row_N))
        first_row = len(self._row_by_key)
        rows = [self._row_by_key.setdefault(key.tobytes(), len(self._row_by_key)) for key in chunk.keys_n]
        self._row_N[chunk.number_n] = rows
        distinct_rows, positions = np.unique(np.array(rows, int), return_index=True)
        position_u = positions[distinct_rows >= first_row]  # The first of each new prompt.
        job.model.statistics.requested_prompts += len(position_u)
        rows_uF, segments = self._look_up(chunk.keys_n[position_u], chunk.lengths_n[position_u])
        self._rows_UF[first_row : first_row + len(rows_uF)] = rows_uF
        [missing] = np.nonzero(~np.all([segment.is_cached_u for segment in segments], 0))
        groups = chunks_lib.select(chunk.groups, chunk.number_n[position_u[missing]], len(self._row_N))
        arguments = (job.model, groups, job.shapes.of, self._activations, self._advance)
        read_pass = lm.QueuedPass(*arguments) if groups else None
        return _Queued(read_pass, missing, segments, first_row, len(rows) - len(missing))

    def finish(self, queued: _Queued) -> None:
        """Wait for a chunk's pass, and start to copy and cache its rows."""
        self._advance(queued.num_skipped, 0)
        if not queued.read_pass:
            return
        with self._timed():
            queued.read_pass.wait()
            if self._keeping:
                self._keeping.result()
        self._num_read += len(queued.missing_u)
        self._keeping = self._job.keeper.submit(self._keep, queued.read_pass, queued)

    def _advance(self, num_prompts: int, num_tokens: int) -> None:
        """Advance the bar, which appears at its first use: bars of sets do not overlap."""
        if not self._report:
            self._report = self._bar.enter_context(progress.bar(len(self._row_N), self._title))
        self._report(num_prompts, num_tokens)

    def _keep(self, read_pass: lm.QueuedPass, queued: _Queued) -> None:
        """Write the states of a pass into their rows; process 0 adds the segments that the cache lacks."""
        rows_mF = read_pass.rows()
        for segment in queued.segments:
            is_new_m = ~segment.is_cached_u[queued.missing_u]
            rows_mf = rows_mF[is_new_m, segment.columns]
            new_u = queued.missing_u[is_new_m]
            self._rows_UF[queued.first_row + new_u, segment.columns] = rows_mf
            if self._job.cache and self._job.model.fingerprint and new_u.size and parallel.is_main():
                self._job.cache.keep(segment.keys_u[new_u], rows_mf)

    def result(self) -> PassResult:
        """Return the states of all prompts, split over the devices by row."""
        with self._timed():
            if self._keeping:
                self._keeping.result()
        self._bar.close()
        is_whole = len(self._row_by_key) == len(self._row_N) and (np.diff(self._row_N) == 1).all()
        rows_NF = self._rows_UF if is_whole else self._rows_UF[self._row_N]
        ends = np.cumsum([self._widths[0] - 1, 1, *self._widths[1:]])[:-1]
        hidden_NE, log_z_N1, *by_activation = np.split(rows_NF, ends, 1)
        arrays = (hidden_NE, log_z_N1[:, 0], dict(zip(self._activations, by_activation, strict=True)))
        hidden_NE, log_z_N, activations = parallel.put_rows(arrays, self._job.model.mesh)
        states = lm.States(hidden_NE, log_z_N, self._job.model.deterministic, activations)
        return PassResult(states, self._num_read, self._seconds if self._num_read else 0.0)

    def _look_up(self, keys_u: np.ndarray, lengths_u: np.ndarray) -> tuple[np.ndarray, list["_Segment"]]:
        """Return the rows [u, F] of new prompts with `lengths_u` own tokens, zero where the cache has none.

        Return their segments, too.
        """
        cache = self._job.cache
        rows_uF = np.zeros((len(keys_u), sum(self._widths)), np.float32)
        segments = []
        start = 0
        for output, width in zip((None, *self._activations), self._widths, strict=True):
            keys = _activation_keys(keys_u, lengths_u, output) if output else keys_u
            columns = slice(start, start + width)
            is_cached_u = np.zeros(len(keys), bool)
            if cache and self._job.model.fingerprint:
                if parallel.is_main():
                    is_cached_u, rows_uF[:, columns] = cache.find(keys, width)
                is_cached_u = parallel.broadcast_object(is_cached_u)
                if is_cached_u.any():
                    rows_uF[:, columns] = parallel.broadcast_from_main(rows_uF[:, columns])
            segments.append(_Segment(keys, columns, is_cached_u))
            start += width
        return rows_uF, segments


@dataclasses.dataclass(frozen=True)
class _Segment:
    """A run of columns with keys of its own, so that jobs which request other outputs can reuse it.

    Attributes:
        keys_u: the keys of a chunk's new prompts.
        columns: its columns in a row.
        is_cached_u: whether the cache had it before the pass.
    """

    keys_u: np.ndarray
    columns: slice
    is_cached_u: np.ndarray


def _activation_keys(keys_u: np.ndarray, lengths_u: np.ndarray, output: lm.Activation) -> np.ndarray:
    """Return the keys of an output of a block; that of a mean has the number of the prompt's own tokens."""
    names = [f"{output.block} {length}" if output.is_mean else str(output.block) for length in lengths_u.tolist()]
    digests = [hashlib.sha256(key.tobytes() + name.encode()).digest() for key, name in zip(keys_u, names, strict=True)]
    return np.array(digests, cache_lib.KEY_DTYPE)
