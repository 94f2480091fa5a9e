"""The engine: passes in, records out. Every job that runs methods runs them here."""

import contextlib
import dataclasses
import datetime
import functools
import itertools
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tqdm
from absl import logging
from jax.sharding import Mesh

from knnprompt_jax import files, lm, parallel, states
from knnprompt_jax.methods import method
from knnprompt_jax.models import sharding
from knnprompt_jax.prompts import layout
from knnprompt_jax.runs import inputs, records
from knnprompt_jax.runs import run as run_lib
from knnprompt_jax.settings import shared
from knnprompt_jax.store import store as store_lib

LoadStore = Callable[[lm.LanguageModel], store_lib.Store]
BeforeWriting = Callable[[records.Record, method.Context], None]


def run(
    settings: shared.SharedSettings,
    passes: Sequence[run_lib.Pass],
    mesh: Mesh,
    *,
    load_store: LoadStore | None = None,
    before_writing: BeforeWriting | None = None,
) -> Iterator[records.Record]:
    """Run passes model by model and yield each record as soon as it is written to the output folder.

    The records of an experiment are in a subfolder of its name. Prompts are laid out before weights load.

    Args:
      load_store: loads the store of a saved classifier, which replaces the anchors.
      before_writing: is called with each record before it is written.

    Raises:
      UserError: prompts that cannot be laid out, a model that cannot be loaded or split over the mesh, a folder that
        cannot be written, or another process that makes the same records.
    """
    folder = pathlib.Path(settings.output)
    parallel.call_in_main(lambda: files.check_writable(folder, folder=True))
    cache = states.user_cache(settings.cache_gb)
    numbers, started, finished_work = itertools.count(1), time.monotonic(), 0.0
    total_work = sum(planned.work for planned in passes)
    for planned in passes:
        if planned.reads_prompts:
            sharding.check(planned.model.config, mesh)
    for model, of_model in itertools.groupby(passes, lambda planned: planned.model):
        loaded: lm.LanguageModel | None = None
        store: store_lib.Store | None = None
        # Passes of a task with as many demonstrations share one packing, and so their compiled programs.
        for (_, _, reads_prompts), group in itertools.groupby(of_model, _packing_key):
            planned_passes = list(group)
            laid_out = [planned.lay_out() for planned in planned_passes]
            _warn(planned_passes[0], laid_out[0])
            if loaded is None and reads_prompts:
                loaded = inputs.load_weights(settings, model, mesh)
                store = load_store(loaded) if load_store else None
            titles = [_title(planned, f"{next(numbers)}/{len(passes)}") for planned in planned_passes]
            reads: Iterator[lm.States | None] = itertools.repeat(None)
            if loaded and reads_prompts:
                reads = states.read_each(loaded, laid_out, cache, titles=titles)
            for planned, prompts, title in zip(planned_passes, laid_out, titles, strict=True):
                with parallel.by_main(_exclusive(folder, planned)):
                    for record, context in _records(planned, prompts, reads, loaded, store, cache):
                        if before_writing:
                            parallel.call_in_main(functools.partial(before_writing, record, context))
                        parallel.call_in_main(functools.partial(records.write, folder / record.experiment, record))
                        yield record
                finished_work += planned.work
                if parallel.is_main() and len(passes) > 1:
                    share = finished_work / total_work if finished_work else 1.0
                    left = datetime.timedelta(seconds=round((time.monotonic() - started) * (1 / share - 1)))
                    tqdm.tqdm.write(f"{title}: {len(planned.runs)} records; {left} left", file=sys.stderr)
    parallel.wait_for_all("records")


@contextlib.contextmanager
def _exclusive(folder: pathlib.Path, planned: run_lib.Pass) -> Iterator[None]:
    """Lock the records of a pass; raise UserError if another process makes one of them.

    Shards and runs with other settings share a folder.
    """
    with contextlib.ExitStack() as stack:
        for path in (folder / run.experiment / run.file_name for run in planned.runs):
            files.check_writable(path)
            stack.enter_context(files.lock(path))
        yield


def _title(planned: run_lib.Pass, number: str) -> str:
    task, seed = planned.runs[0].problem.task.name, planned.runs[0].problem.split.seed
    return f"{number} {planned.model.short_name} {task} seed {seed}, {len(planned.demonstrations)} demonstrations"


def _packing_key(planned: run_lib.Pass) -> tuple[str, int, bool]:
    return planned.runs[0].problem.task.name, len(planned.demonstrations), planned.reads_prompts


def _records(
    planned: run_lib.Pass,
    prompts: layout.Prompts,
    reads: Iterator[lm.States | None],
    model: lm.LanguageModel | None,
    store: store_lib.Store | None,
    cache: states.AnyCache | None,
) -> Iterator[tuple[records.Record, method.Context]]:
    """Read the prompts of a pass, then yield the record of each run with the context of its method."""
    model = model if planned.reads_prompts else None
    statistics = model.statistics if model else lm.PassStatistics()
    before = dataclasses.replace(statistics)
    read_states = next(reads)
    seconds, num_read = statistics.seconds - before.seconds, statistics.prompts - before.prompts
    for run in planned.runs:
        context = planned.context(run, model, read_states, store, cache)
        started, tokens_before = time.monotonic(), statistics.requested_tokens
        prediction = run.method.run(context, run.options)
        method_seconds = time.monotonic() - started
        indices = [np.zeros(0, int), *(planned.indices(run, needed) for needed in planned.needs(run))]
        shared = np.unique(np.concatenate(indices))
        classes_Q = np.asarray(prediction.classes_Q)
        outcome = records.Outcome(
            accuracy=float(np.mean(classes_Q == context.classes(run.problem.evaluation))),
            predicted=tuple(run.problem.task.labels[index] for index in classes_Q),
            prompts=len(shared) + prediction.prompts,
            truncated_prompts=_num_truncated(prompts, shared) + prediction.truncated,
            dropped_demonstrations=prompts.dropped_demonstrations,
            seconds={"language_model": round(seconds, 3), "method": round(method_seconds, 3)},
            prompts_per_second=round(num_read / max(1e-9, seconds), 2),
            lm_tokens=_num_tokens(prompts, shared) + statistics.requested_tokens - tokens_before + prediction.tokens,
            note="; ".join(filter(None, (run.note, prediction.note))),
            datastore=prediction.datastore,
            candidates=prediction.candidates,
        )
        yield records.Record.of(run, outcome), context


def _num_tokens(prompts: layout.Prompts, members: np.ndarray) -> int:
    """Count the tokens of some of the prompts, the prefix of a group once."""
    tokens = 0
    for group in prompts.groups:
        is_member = np.isin(group.index, members)
        suffixes = sum(len(suffix) for suffix, counts in zip(group.suffixes, is_member, strict=True) if counts)
        tokens += suffixes + (len(group.prefix_P) if is_member.any() else 0)
    return tokens


def _num_truncated(prompts: layout.Prompts, members: np.ndarray) -> int:
    """Count those of some prompts that were truncated; these are the last group."""
    return int(np.isin(prompts.groups[-1].index, members).sum()) if prompts.num_truncated else 0


def _warn(planned: run_lib.Pass, prompts: layout.Prompts) -> None:
    """Log which classes have too few rows, and how many queries alone exceed the context."""
    for warning in planned.runs[0].problem.split.warnings:
        logging.warning(warning)
    if prompts.num_oversized:
        logging.warning(
            "%d queries alone are longer than the context of %d tokens: their beginning is cut off, as published; "
            "--truncation=error refuses them",
            prompts.num_oversized,
            planned.model.context,
        )
