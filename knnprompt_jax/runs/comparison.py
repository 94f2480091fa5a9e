"""Any set of methods on the same splits: one language-model pass per seed, a record per seed and method."""

import collections
import functools
import pathlib
from collections.abc import Iterator

from absl import logging

from knnprompt_jax import options as options_lib
from knnprompt_jax.classifier import saving
from knnprompt_jax.methods import method, registry
from knnprompt_jax.runs import engine, material, method_settings, passes, records
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks import splits


def run(settings: method_settings.JobSettings) -> list[records.Record]:
    """Runs every method for every seed; each record is written as soon as it is there.

    With `resume`, what the output folder has a record of already, by the same settings and model, is not run again.

    Raises UserError on anything that cannot work, before anything is written.
    """
    saved = saving.read(pathlib.Path(settings.store)) if settings.store else None
    if saved:
        settings = material.with_saved_model(settings, saved)
    mesh = engine.start(settings, [settings.model])
    rows = material.load_rows(settings, settings.task, settings.train_file, settings.eval_file)
    model = material.load_model(settings.model, settings.revision)
    if saved:
        _check(saved, settings, rows, model)
        drawn = [saved.split]
    else:
        shots, shown = settings.shots or None, material.demo_shots(settings, rows, model)
        drawn = [
            splits.draw(rows.train, rows.task, shots=shots, demo_shots=shown, seed=seed)
            for seed in dict.fromkeys(settings.seeds)
        ]
    runs = [run for split in drawn for run in _runs(settings, rows, model, split)]
    folder = pathlib.Path(settings.output)
    done = records.finished(folder, [run.record for run in runs]) if settings.resume else {}
    missing = [run for run in runs if run.record.name not in done]
    planned = passes.together(model, missing, anchors_are_stored=bool(saved))
    store_of = functools.partial(saved.load, options=settings.datastore) if saved else None
    for record in engine.run(settings, planned, mesh, folder, store_of=store_of):
        done[record.name] = record
    return [done[run.record.name] for run in runs]


def _check(
    saved: saving.Saved, settings: method_settings.JobSettings, rows: material.Rows, model: material.Model
) -> None:
    """Raises UserError unless the anchors of the saved classifier were made as the job's would be."""
    identity = model.identity(settings.dtype, settings.deterministic)
    label_ids = saved.manifest.provenance.label_ids
    saved.check(identity, rows.task, label_ids, truncation=settings.truncation, label_token=settings.label_token)


def _runs(
    settings: method_settings.JobSettings, rows: material.Rows, model: material.Model, split: splits.FewShotSplit
) -> Iterator[passes.Run]:
    problem = method.Problem(
        rows.task,
        split,
        rows.evaluation,
        model.tokenize,
        label_token=settings.label_token,
        truncation=settings.truncation,
        logit_cap=model.config.logit_cap,
    )
    methods, left_out = registry.select(settings.method_names, problem)
    _tell(left_out)
    decisive = options_lib.decisive(settings)
    for chosen in methods:
        options = getattr(settings.options, chosen.name)
        chosen.prepare(problem, options)
        if chosen.searches:
            store_lib.kind_of(settings.datastore, "", problem.logit_cap)
        yield passes.draft(decisive, model, rows, chosen.name, chosen, options, problem)


def _tell(left_out: dict[str, str]) -> None:
    """Logs why methods of "all" do not apply."""
    names_by_reason = collections.defaultdict(list)
    for name, reason in left_out.items():
        names_by_reason[reason].append(name)
    for reason, names in names_by_reason.items():
        logging.log_first_n(logging.WARNING, "left out: %s: %s", 100, ", ".join(names), reason)
