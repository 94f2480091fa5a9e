"""The engine: passes in, records out. Every job that runs methods runs them here."""

import contextlib
import dataclasses
import functools
import itertools
import pathlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
from absl import logging
from jax.sharding import Mesh

from knnprompt_jax import errors, files, lm, parallel, progress
from knnprompt_jax.lm import memory
from knnprompt_jax.methods import method
from knnprompt_jax.models import registry, sharding
from knnprompt_jax.runs import clock as clock_lib
from knnprompt_jax.runs import material, method_settings, records, states_cache
from knnprompt_jax.runs import passes as passes_lib
from knnprompt_jax.runs import reading as reading_lib
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.store import store as store_lib

StoreOf = Callable[[lm.LanguageModel], store_lib.Store]
STATES = "states"  # The folder of states, beside the records.
Written = Callable[[records.Record, method.Context], None]


def start(settings: method_settings.SharedSettings | settings_lib.BuildSettings, models: Sequence[str]) -> Mesh:
    """As `join`, and gives the mesh of the devices for these models.

    Raises:
        UserError: as `join`; the devices cannot be laid out so, or no such model.
    """
    join(settings)
    return make_mesh(settings, models)


def join(settings: method_settings.SharedSettings | settings_lib.BuildSettings) -> None:
    """Joins the processes of the run, before anything else touches a device.

    Raises:
        UserError: the processes cannot be joined, or several search host memory.
    """
    parallel.start(**dataclasses.asdict(settings.distributed))
    store_lib.check_processes(settings.datastore)


def make_mesh(settings: settings_lib.ModelOptions, models: Sequence[str]) -> Mesh:
    """The mesh of the settings; where they leave its axis `model` open, the smallest on which all these models fit."""
    size = settings.mesh.model
    if not size:
        configs = [registry.describe(name, settings.revision or None, weights=False)[0] for name in models]
        size = memory.model_axis(configs, settings.dtype, settings.batch)
    return parallel.make_mesh(settings.mesh.data, size)


def load(settings: settings_lib.ReadingOptions, model: material.Model, mesh: Mesh) -> lm.LanguageModel:
    """The weights of a model, over the mesh."""
    described = (model.folder, model.config, model.tokenizer, model.name, model.fingerprint)
    return lm.LanguageModel.from_files(*described, settings.dtype, settings.batch or None, mesh, settings.deterministic)


def run(
    settings: method_settings.SharedSettings,
    passes: Sequence[passes_lib.Pass],
    mesh: Mesh,
    folder: pathlib.Path,
    *,
    store_of: StoreOf | None = None,
    before_writing: Written | None = None,
) -> Iterator[records.Record]:
    """Runs passes model by model and yields each record as soon as it is there; of several processes, the first has written it.

    The records of an experiment stand in a folder of its name within, the states of prompts in `STATES`: those that are there are
    not read again. Prompts are laid out before weights load. `store_of`
    gives the saved store that stands for anchors; `before_writing` is called with a record before it is written.

    Raises UserError on prompts that cannot be laid out, on a model that cannot be loaded or split over the mesh, on a folder
    that cannot be written to, and where another process makes the same records.
    """
    parallel.call_in_main(lambda: files.check_writable(folder, folder=True))
    earlier = {path.name for pattern in ("*.json", "*/*.json") for path in folder.glob(pattern)}
    cache = states_cache.StatesCache(folder / STATES, int(settings.states_gb * 2**30))
    clock = clock_lib.Clock(passes)
    for planned in passes:
        if planned.reads_prompts:
            sharding.check(planned.model.config, mesh)
    for model, of_model in itertools.groupby(passes, lambda planned: planned.model):
        loaded: reading_lib.CachedModel | None = None
        store: store_lib.Store | None = None
        for _, alike in itertools.groupby(of_model, _shares_compilations):
            readings = [passes_lib.lay_out(planned) for planned in alike]
            _warn(readings[0])
            if loaded is None and readings[0].planned.reads_prompts:
                loaded = reading_lib.CachedModel(load(settings, model, mesh), cache)
                store = store_of(loaded) if store_of else None
            shape = passes_lib.shape_of(readings, loaded) if loaded else None
            for reading in readings:
                with parallel.by_main(_alone(folder, reading.planned, earlier)):
                    for record, context in _outcomes(settings, reading, loaded, shape, store, clock):
                        parallel.call_in_main(functools.partial(_write, folder, record, context, before_writing))
                        yield record
                clock.done(reading.planned)
    parallel.wait_for_all("records")


@contextlib.contextmanager
def _alone(folder: pathlib.Path, planned: passes_lib.Pass, earlier: Collection[str]) -> Iterator[None]:
    """Holds the records of a pass; raises UserError where another process makes one of them, or has since the start.

    `earlier` are the files that were there at the start. Shards, and runs with other settings, share a folder.
    """
    with contextlib.ExitStack() as stack:
        for path in (folder / run.record.experiment / run.record.name for run in planned.runs):
            files.check_writable(path)
            stack.enter_context(files.lock(path))
            if path.exists() and path.name not in earlier:
                raise errors.UserError(f"{path}: another process has written it since this run began")
        yield


def _write(folder: pathlib.Path, record: records.Record, context: method.Context, before: Written | None) -> None:
    if before:
        before(record, context)
    records.write(folder / record.experiment, record)


def _shares_compilations(planned: passes_lib.Pass) -> tuple[str, int, bool]:
    return planned.runs[0].problem.task.name, len(planned.demonstrations), planned.reads_prompts


def _outcomes(
    settings: method_settings.SharedSettings,
    reading: passes_lib.Reading,
    model: reading_lib.CachedModel | None,
    shape: Any,
    store: store_lib.Store | None,
    clock: clock_lib.Clock,
) -> Iterator[tuple[records.Record, method.Context]]:
    """The records of a pass, as each run is over."""
    before = dataclasses.replace(model.statistics) if model else lm.PassStatistics()
    with progress.bar(reading.prompts.num_prompts, clock.title(reading.planned)) as report:
        states = model.states(reading.prompts, shape, report) if model else None
    after = model.statistics if model else before
    seconds, prompts = after.seconds - before.seconds, after.prompts - before.prompts
    for run in reading.planned.runs:
        context = reading.context(run, model, states, settings.datastore, store)
        started, tokens_before = time.monotonic(), _tokens_read(model)
        prediction = run.method.run(context, run.settings)
        taken = {"language_model": round(seconds, 3), "method": round(time.monotonic() - started, 3)}
        costs: dict[str, Any] = reading.costs(run)
        costs["lm_tokens"] += _tokens_read(model) - tokens_before + prediction.tokens
        costs["truncated_prompts"] += prediction.truncated
        costs["prompts"] += prediction.prompts
        rate = round(prompts / max(1e-9, seconds), 2)
        outcome = _outcome(run, context, prediction)
        dropped = reading.prompts.dropped_demonstrations
        yield (
            dataclasses.replace(
                run.record, seconds=taken, prompts_per_second=rate, dropped_demonstrations=dropped, **costs, **outcome
            ),
            context,
        )


def _outcome(run: passes_lib.Run, context: method.Context, prediction: method.Prediction) -> dict[str, Any]:
    """The fields of a record that a prediction gives."""
    task, classes_Q = run.problem.task, np.asarray(prediction.classes_Q)
    return {
        "accuracy": float(np.mean(classes_Q == context.classes(run.problem.evaluation))),
        "predicted": tuple(task.labels[index] for index in classes_Q),
        "note": "; ".join(filter(None, (run.record.note, prediction.note))),
        "candidates": prediction.candidates,
        "datastore": prediction.datastore,
    }


def _tokens_read(model: reading_lib.CachedModel | None) -> int:
    """Tokens of all passes so far, those of prompts that the cache had among them."""
    if not model:
        return 0
    return model.statistics.tokens + model.spared_tokens


def _warn(reading: passes_lib.Reading) -> None:
    """Logs which classes have too few rows, and how many queries do not fit even alone."""
    for warning in reading.planned.runs[0].problem.split.warnings:
        logging.warning(warning)
    if reading.prompts.num_oversized:
        logging.warning(
            "%d queries alone are longer than the context of %d tokens: their beginning is cut off, as published; "
            "truncation='error' refuses them",
            reading.prompts.num_oversized,
            reading.planned.model.config.num_positions,
        )
