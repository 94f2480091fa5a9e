"""The engine: groups of runs in, records out. Every job that runs methods runs them here."""

import contextlib
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

from knnprompt_jax import files, parallel, states
from knnprompt_jax.methods import method
from knnprompt_jax.prompts import layout
from knnprompt_jax.runs import inputs, plan, records

BeforeWriting = Callable[[records.Record, method.Inputs], None]


def run_groups(
    groups: Sequence[plan.RunGroup],
    folder: pathlib.Path,
    cache_gb: float,
    before_writing: BeforeWriting | None = None,
) -> Iterator[records.Record]:
    """Run groups in their order and yield each record as soon as it is written to the folder.

    The records of an experiment are in a subfolder of its name. The first group's prompts are built before weights
    load.

    Args:
        groups: those of one model follow one another; its weights are freed after the last.
        cache_gb: GiB of the cache of states on disk.
        before_writing: called in every process with each record and the inputs of its method, before the record is
            written.

    Raises:
        UserError: prompts that cannot be built, a model that cannot be loaded, a folder that cannot be written, or
            another process that makes the same records.
    """
    parallel.call_in_main(lambda: files.check_writable(folder, folder=True))
    cache = states.open_disk_cache(cache_gb)
    progress = _Progress(groups)
    for _, same_shape in itertools.groupby(groups, lambda group: (group.model, group.packing_key)):
        for group, prompts, result in _read_groups(list(same_shape), progress, cache):
            with parallel.enter_in_main(_lock_records(folder, group)):
                yield from _write_records(group, prompts, result, cache, folder, before_writing)
            progress.finish(group)
            if progress.is_last(group):
                group.model.free()
    parallel.wait_for_all("records")


def _read_groups(
    groups: Sequence[plan.RunGroup], progress: "_Progress", cache: states.Cache | None
) -> Iterator[tuple[plan.RunGroup, layout.Prompts, states.PassResult]]:
    """Yield each group with its prompts and their states; all groups share their pack shapes."""
    all_prompts = [group.build_prompts() for group in groups]
    warnings = (text for run in groups[0].runs for text in run.problem.split.warnings)
    # Once, although runs share splits, and only of the first group: other seeds have the same warnings.
    inputs.log_warnings(dict.fromkeys(warnings))
    if oversized := max(prompts.num_oversized for prompts in all_prompts):
        logging.warning(
            "%d texts exceed the context of %d tokens even without demonstrations; their first tokens are cut "
            "off, as published (--truncation=error refuses them)",
            oversized,
            groups[0].model.context,
        )
    titles = [progress.title(group) for group in groups]
    results = states.read_sets(groups[0].model, all_prompts, cache, titles)
    yield from zip(groups, all_prompts, results, strict=True)


@contextlib.contextmanager
def _lock_records(folder: pathlib.Path, group: plan.RunGroup) -> Iterator[None]:
    """Lock the records of a group; raise UserError if another process makes one of them.

    The shards of a grid (`--shard`) and runs with other settings share a folder.
    """
    with contextlib.ExitStack() as stack:
        for run in group.runs:
            path = folder / run.experiment / run.file_name
            files.check_writable(path)
            stack.enter_context(files.lock(path))
        yield


def _write_records(
    group: plan.RunGroup,
    prompts: layout.Prompts,
    result: states.PassResult,
    cache: states.Cache | None,
    folder: pathlib.Path,
    before_writing: BeforeWriting | None,
) -> Iterator[records.Record]:
    """Run the methods of a group, and yield each record after it is written."""
    for run in group.runs:
        record, method_inputs = _run_method(group, run, prompts, result, cache)
        if before_writing:
            before_writing(record, method_inputs)
        parallel.call_in_main(functools.partial(records.write, folder / record.experiment, record))
        yield record


def _run_method(
    group: plan.RunGroup,
    run: plan.Run,
    prompts: layout.Prompts,
    result: states.PassResult,
    cache: states.Cache | None,
) -> tuple[records.Record, method.Inputs]:
    """Return the record of a run, and the inputs of its method."""
    indices = {prompt_set: group.indices(run, prompt_set) for prompt_set in run.method.needs}
    needed_states = {prompt_set: result.states.take_replicated(rows) for prompt_set, rows in indices.items()}
    method_inputs = method.Inputs(run.problem, run.model, needed_states, run.store_options, cache)
    started = time.monotonic()
    prediction = run.method.predict(method_inputs, run.options)
    method_seconds = time.monotonic() - started
    own_prompts = np.unique(np.concatenate([np.zeros(0, int), *indices.values()]))
    num_truncated = np.isin(prompts.truncated_index, own_prompts).sum()
    classes_Q = np.asarray(prediction.classes_Q)
    outcome = records.Outcome(
        accuracy=float(np.mean(classes_Q == method_inputs.classes(run.problem.evaluation))),
        predicted=tuple(run.problem.task.labels[index] for index in classes_Q),
        prompts=len(own_prompts) + prediction.prompts,
        truncated_prompts=int(num_truncated) + prediction.truncated,
        seconds={"language_model": round(result.seconds, 3), "method": round(method_seconds, 3)},
        prompts_per_second=round(result.num_read / max(1e-9, result.seconds), 2),
        lm_tokens=_num_tokens(prompts, own_prompts) + prediction.tokens,
        note="; ".join(filter(None, (run.note, prediction.note))),
        candidates=prediction.candidates,
    )
    return records.Record.of(run, outcome), method_inputs


def _num_tokens(prompts: layout.Prompts, numbers: np.ndarray) -> int:
    """Count the tokens of the prompts with these numbers; the prefix of a `PromptGroup` counts once."""
    tokens = 0
    for part in prompts.groups:
        is_counted_N = np.isin(part.number_N, numbers)
        if is_counted_N.any():
            tokens += part.take(np.flatnonzero(is_counted_N)).num_tokens
    return tokens


class _Progress:
    """Numbers the groups of a job and prints a line after each: its records and the time left."""

    def __init__(self, groups: Sequence[plan.RunGroup]):
        self._groups = groups
        self._number_of = {id(group): number for number, group in enumerate(groups, 1)}
        self._started = time.monotonic()
        self._total_work = sum(group.work for group in groups) if len(groups) > 1 else 0.0
        self._finished_work = 0.0

    def title(self, group: plan.RunGroup) -> str:
        return f"{self._number_of[id(group)]}/{len(self._groups)} {group.title}"

    def is_last(self, group: plan.RunGroup) -> bool:
        """Return whether no later group has the same model."""
        later = self._groups[self._number_of[id(group)] :]
        return all(later_group.model is not group.model for later_group in later)

    def finish(self, group: plan.RunGroup) -> None:
        """Print that the records of a group are written; process 0 prints, and only if there are several groups."""
        if len(self._groups) == 1 or not parallel.is_main():
            return
        self._finished_work += group.work
        count = len(group.runs)
        line = f"{self.title(group)}: {count} record{'s' * (count != 1)} written"
        if self._finished_work:
            share_left = self._total_work / self._finished_work - 1
            seconds = round((time.monotonic() - self._started) * share_left)
            line += f"; {datetime.timedelta(seconds=seconds)} left"
        tqdm.tqdm.write(line, file=sys.stderr)
