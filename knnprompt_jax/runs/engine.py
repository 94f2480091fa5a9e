"""The engine: passes in, records out. Every job that runs methods runs them here."""

import dataclasses
import itertools
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from absl import logging
from jax.sharding import Mesh

from knnprompt_jax import lm, parallel, progress
from knnprompt_jax.methods import method
from knnprompt_jax.models import sharding
from knnprompt_jax.runs import clock as clock_lib
from knnprompt_jax.runs import material, records
from knnprompt_jax.runs import passes as passes_lib
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.store import store as store_lib

StoreOf = Callable[[lm.LanguageModel], store_lib.Store]
Written = Callable[[records.Record, method.Context], None]


def start(settings: settings_lib.SharedSettings | settings_lib.BuildSettings) -> Mesh:
    """Joins the processes of the run, before anything else touches a device, and gives the mesh of their devices.

    Raises:
        UserError: the processes cannot be joined, the devices not be laid out so, or several search host memory.
    """
    parallel.start(**dataclasses.asdict(settings.distributed))
    store_lib.check_processes(settings.datastore)
    return parallel.make_mesh(settings.mesh.data, settings.mesh.model)


def load(settings: settings_lib.ModelOptions, model: material.Model, mesh: Mesh) -> lm.LanguageModel:
    """The weights of a model, over the mesh."""
    return lm.LanguageModel.from_pretrained(
        str(model.folder), settings.dtype, step_tokens=settings.batch or None, mesh=mesh, name=model.name
    )


def run(
    settings: settings_lib.SharedSettings,
    passes: Sequence[passes_lib.Pass],
    mesh: Mesh,
    folder: pathlib.Path,
    *,
    store_of: StoreOf | None = None,
    before_writing: Written | None = None,
) -> Iterator[records.Record]:
    """Runs passes model by model and yields each record as soon as it is there; of several processes, the first has written it.

    Prompts are laid out before weights load. `store_of` gives the saved store that stands for anchors; `before_writing` is
    called with a record before it is written.

    Raises UserError on prompts that cannot be laid out, and on a model that cannot be loaded or split over the mesh.
    """
    clock = clock_lib.Clock(passes)
    for planned in passes:
        if planned.reads_prompts:
            sharding.check(planned.model.config, mesh)
    for model, of_model in itertools.groupby(passes, lambda planned: planned.model):
        loaded: lm.LanguageModel | None = None
        store: store_lib.Store | None = None
        for _, alike in itertools.groupby(of_model, _shares_compilations):
            readings = [passes_lib.lay_out(planned) for planned in alike]
            _warn(readings[0])
            if loaded is None and readings[0].planned.reads_prompts:
                loaded = load(settings, model, mesh)
                store = store_of(loaded) if store_of else None
            shape = passes_lib.shape_of(readings, loaded) if loaded else None
            for reading in readings:
                for record, context in _outcomes(settings, reading, loaded, shape, store, clock):
                    if parallel.is_main():
                        if before_writing:
                            before_writing(record, context)
                        records.write(folder, record)
                    yield record
                clock.done(reading.planned)
    parallel.wait_for_all("records")


def _shares_compilations(planned: passes_lib.Pass) -> tuple[str, int, bool]:
    return planned.runs[0].problem.task.name, len(planned.demonstrations), planned.reads_prompts


def _outcomes(
    settings: settings_lib.SharedSettings,
    reading: passes_lib.Reading,
    model: lm.LanguageModel | None,
    shape: Any,
    store: store_lib.Store | None,
    clock: clock_lib.Clock,
) -> Iterator[tuple[records.Record, method.Context]]:
    """The records of a pass, as each run is over."""
    before = model.statistics.seconds if model else 0.0
    with progress.bar(reading.prompts.num_prompts, clock.title(reading.planned)) as report:
        states = model.states(reading.prompts, shape, report) if model else None
    seconds = model.statistics.seconds - before if model else 0.0
    for run in reading.planned.runs:
        context = reading.context(run, model, states, settings.datastore, store)
        started, tokens_before = time.monotonic(), _tokens_read(model)
        prediction = run.method.run(context, run.settings)
        taken = {"language_model": round(seconds, 3), "method": round(time.monotonic() - started, 3)}
        costs: dict[str, Any] = reading.costs(run)
        costs["lm_tokens"] += _tokens_read(model) - tokens_before
        costs["truncated_prompts"] += prediction.truncated
        costs["prompts"] += prediction.prompts
        rate = round(reading.prompts.num_prompts / max(1e-9, seconds), 2)
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


def _tokens_read(model: lm.LanguageModel | None) -> int:
    return model.statistics.prefix_tokens + model.statistics.suffix_tokens if model else 0


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
