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
from knnprompt_jax.prompts import layout
from knnprompt_jax.runs import inputs, records
from knnprompt_jax.runs import run as run_lib
from knnprompt_jax.store import store as store_lib


def run(
    passes: Sequence[run_lib.Pass],
    mesh: Mesh,
    folder: pathlib.Path,
    cache_gb: float,
    *,
    load_store: Callable[[lm.LanguageModel], store_lib.Store] | None = None,
    before_writing: Callable[[records.Record, method.Context], None] | None = None,
) -> Iterator[records.Record]:
    """Run passes model by model and yield each record as soon as it is written to the folder.

    The records of an experiment are in a subfolder of its name. Prompts are built before weights load.

    Args:
      cache_gb: GiB of the user's cache of states.
      load_store: loads the store of a saved classifier, which replaces the anchors.
      before_writing: a function called with each record and its context before the record is written.

    Raises:
      UserError: prompts that cannot be built, a model that cannot be loaded, a folder that
        cannot be written, or another process that makes the same records.
    """
    parallel.call_in_main(lambda: files.check_writable(folder, folder=True))
    cache = states.user_cache(cache_gb)
    numbers, started, finished_work = itertools.count(1), time.monotonic(), 0.0
    total_work = sum(planned.work for planned in passes) if len(passes) > 1 else 0.0
    for model, model_passes in itertools.groupby(passes, lambda planned: planned.model):
        loaded: lm.LanguageModel | None = None
        store: store_lib.Store | None = None
        # Passes of a task with equally many demonstrations share one packing, and so their compiled programs.
        for (_, _, reads_prompts), group in itertools.groupby(model_passes, lambda planned: planned.packing_key):
            planned_passes = list(group)
            prompts_by_pass = [planned.build_prompts() for planned in planned_passes]
            warnings = (text for run in planned_passes[0].runs for text in run.problem.split.warnings)
            inputs.log_warnings(dict.fromkeys(warnings))  # Once, although runs share splits.
            if oversized := max(prompts.num_oversized for prompts in prompts_by_pass):
                logging.warning(
                    "%d queries exceed the context of %d tokens even without demonstrations; their first tokens are cut "
                    "off, as published (--truncation=error refuses them)",
                    oversized,
                    model.context,
                )
            if loaded is None and reads_prompts:
                loaded = model.load(mesh)
                store = load_store(loaded) if load_store else None
            titles = [f"{next(numbers)}/{len(passes)} {planned.title}" for planned in planned_passes]
            states_by_pass: Iterator[lm.States | None] = itertools.repeat(None)
            if loaded and reads_prompts:
                states_by_pass = states.read_sets(loaded, prompts_by_pass, cache, titles=titles)
            for planned, prompts, title in zip(planned_passes, prompts_by_pass, titles, strict=True):
                with parallel.enter_in_main(_lock_records(folder, planned)):
                    for record, context in _records(planned, prompts, states_by_pass, loaded, store, cache):
                        if before_writing:
                            parallel.call_in_main(functools.partial(before_writing, record, context))
                        parallel.call_in_main(functools.partial(records.write, folder / record.experiment, record))
                        yield record
                if parallel.is_main() and len(passes) > 1:
                    finished_work += planned.work
                    count = len(planned.runs)
                    line = f"{title}: {count} record{'s' * (count != 1)} written"
                    if finished_work:
                        seconds = (time.monotonic() - started) * (total_work / finished_work - 1)
                        line += f"; {datetime.timedelta(seconds=round(seconds))} left"
                    tqdm.tqdm.write(line, file=sys.stderr)
    parallel.wait_for_all("records")


@contextlib.contextmanager
def _lock_records(folder: pathlib.Path, planned: run_lib.Pass) -> Iterator[None]:
    """Lock the records of a pass; raise UserError if another process makes one of them.

    Shards and runs with other settings share a folder.
    """
    with contextlib.ExitStack() as stack:
        for path in (folder / run.experiment / run.file_name for run in planned.runs):
            files.check_writable(path)
            stack.enter_context(files.lock(path))
        yield


def _records(
    planned: run_lib.Pass,
    prompts: layout.Prompts,
    states_by_pass: Iterator[lm.States | None],
    model: lm.LanguageModel | None,
    store: store_lib.Store | None,
    cache: states.AnyCache | None,
) -> Iterator[tuple[records.Record, method.Context]]:
    """Read the prompts of a pass, then yield the record of each run with the context of its method."""
    model = model if planned.reads_prompts else None
    statistics = model.statistics if model else lm.PassStatistics()
    before = dataclasses.replace(statistics)
    read_states = next(states_by_pass)
    seconds, num_read = statistics.seconds - before.seconds, statistics.prompts - before.prompts
    for run in planned.runs:
        indices = {prompt_set: planned.indices(run, prompt_set) for prompt_set in planned.needs(run)}
        # A method that trains a model of its own gets no states.
        needed = {} if read_states is None else {name: read_states[rows] for name, rows in indices.items()}
        context = method.Context(run.problem, model, needed, run.datastore, store, cache)  # type: ignore[arg-type]
        started, tokens_before = time.monotonic(), statistics.requested_tokens
        prediction = run.method.run(context, run.options)
        method_seconds = time.monotonic() - started
        shared = np.unique(np.concatenate([np.zeros(0, int), *indices.values()]))
        # Truncated prompts are the last group.
        num_truncated = int(np.isin(prompts.groups[-1].index, shared).sum()) if prompts.num_truncated else 0
        classes_Q = np.asarray(prediction.classes_Q)
        outcome = records.Outcome(
            accuracy=float(np.mean(classes_Q == context.classes(run.problem.evaluation))),
            predicted=tuple(run.problem.task.labels[index] for index in classes_Q),
            prompts=len(shared) + prediction.prompts,
            truncated_prompts=num_truncated + prediction.truncated,
            seconds={"language_model": round(seconds, 3), "method": round(method_seconds, 3)},
            prompts_per_second=round(num_read / max(1e-9, seconds), 2),
            lm_tokens=_num_tokens(prompts, shared) + statistics.requested_tokens - tokens_before + prediction.tokens,
            note="; ".join(filter(None, (run.note, prediction.note))),
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
