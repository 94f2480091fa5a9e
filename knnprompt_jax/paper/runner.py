"""Runs a plan: model by model, pass by pass; every record is written as soon as it is there."""

import dataclasses
import datetime
import itertools
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tqdm

from knnprompt_jax import lm, parallel, progress
from knnprompt_jax.methods import method
from knnprompt_jax.models import sharding
from knnprompt_jax.paper import case_study, plan, reading, subjects
from knnprompt_jax.paper import passes as passes_lib
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.runs import records


def run(planned: plan.Plan) -> None:
    """Runs what is left to do and writes the records; of several processes, the first writes."""
    mesh = parallel.make_mesh(planned.settings.mesh_data, planned.settings.mesh_model)
    for one in planned.passes:
        if one.subject.reads_prompts:
            sharding.check(one.subject.model.config, mesh)
    clock = _Clock(planned.passes)
    for model, own in itertools.groupby(planned.passes, lambda one: one.subject.model):
        passes = list(own)
        language_model = _load(planned.settings, model, mesh) if passes[0].subject.reads_prompts else None
        for _, alike in itertools.groupby(passes, _shares_compilations):
            _run_alike(planned.settings, list(alike), language_model, clock)
    parallel.wait_for_all("records")


def _load(settings: settings_lib.GridSettings, model: subjects.Model, mesh: Any) -> lm.LanguageModel:
    return lm.LanguageModel.from_pretrained(
        str(model.folder), settings.dtype, step_tokens=settings.batch or None, mesh=mesh
    )


def _shares_compilations(one: passes_lib.Pass) -> tuple[str, int]:
    return one.subject.rows.task.name, len(one.demonstrations)


def _run_alike(
    settings: settings_lib.GridSettings,
    passes: Sequence[passes_lib.Pass],
    model: lm.LanguageModel | None,
    clock: "_Clock",
) -> None:
    """Runs passes of one task with as many demonstrations each."""
    readings = [reading.lay_out(one) for one in passes]
    shape = reading.shape_of(readings, model) if model else None
    for one in readings:
        before = model.statistics.seconds if model else 0.0
        with progress.bar(one.prompts.num_prompts, clock.title(one.planned)) as report:
            states = model.states(one.prompts, shape, report) if model else None
        seconds = model.statistics.seconds - before if model else 0.0
        for record in _outcomes(settings, one, model, states, seconds):
            if parallel.is_main():
                records.write(pathlib.Path(settings.output) / settings.experiment, record)
        clock.done(one.planned)


def _outcomes(
    settings: settings_lib.GridSettings,
    read: reading.Reading,
    model: lm.LanguageModel | None,
    states: lm.States | None,
    seconds: float,
) -> Iterator[records.Record]:
    """The records of a pass, as each run is over."""
    for run in read.planned.runs:
        context, started = read.context(run, model, states), time.monotonic()
        tokens_before = _tokens_read(model)
        prediction = run.cell.declared.run(context, **run.options)
        own_seconds = {"language_model": round(seconds, 3), "method": round(time.monotonic() - started, 3)}
        costs = read.costs(run)
        costs["lm_tokens"] += _tokens_read(model) - tokens_before
        costs["truncated_prompts"] += prediction.truncated
        outcome = _outcome(run.record, context, prediction)
        record = dataclasses.replace(run.record, seconds=own_seconds, **outcome, **costs)
        if settings.experiment == "case_study" and run.cell.declared.name == "knn" and parallel.is_main():
            case_study.write(pathlib.Path(settings.output) / settings.experiment, record, context)
        yield record


def _outcome(record: records.Record, context: method.Context, prediction: method.Prediction) -> dict[str, Any]:
    """The fields of a record that a prediction gives."""
    task, classes_Q = context.problem.task, np.asarray(prediction.classes_Q)
    return {
        "accuracy": float(np.mean(classes_Q == context.classes(context.problem.evaluation))),
        "predicted": tuple(task.labels[index] for index in classes_Q),
        "note": "; ".join(filter(None, (record.note, prediction.note))),
        "candidates": prediction.candidates,
    }


def _tokens_read(model: lm.LanguageModel | None) -> int:
    return model.statistics.prefix_tokens + model.statistics.suffix_tokens if model else 0


class _Clock:
    """Says which pass is over, and how long the others will take at the pace so far."""

    def __init__(self, passes: Sequence[passes_lib.Pass]):
        self.total, self.work, self.count, self.left = len(passes), 0.0, 0, sum(one.work for one in passes)
        self.started = time.monotonic()

    def title(self, one: passes_lib.Pass) -> str:
        subject, draw = one.subject, one.runs[0].cell.draw
        shown = f"{len(one.demonstrations)} demonstrations"
        return f"{self.count + 1}/{self.total} {subject.model.short_name} {subject.rows.task.name} seed {draw.seed}, {shown}"

    def done(self, one: passes_lib.Pass) -> None:
        if parallel.is_main():
            title = self.title(one)
            self.count, self.work, self.left = self.count + 1, self.work + one.work, self.left - one.work
            spent = time.monotonic() - self.started
            left = datetime.timedelta(seconds=round(spent * max(0.0, self.left) / self.work))
            tqdm.tqdm.write(f"{title}: {len(one.runs)} records; {left} left", file=sys.stderr)
