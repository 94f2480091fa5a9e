"""Compare methods on the same splits: one language-model pass per seed, one record per seed and method."""

import collections
import functools
import pathlib
from collections.abc import Iterator

from absl import logging

from knnprompt_jax.classifier import saving
from knnprompt_jax.methods import registry
from knnprompt_jax.runs import engine, inputs, records
from knnprompt_jax.runs import run as run_lib
from knnprompt_jax.settings import shared
from knnprompt_jax.tasks import splits


def run(settings: shared.ComparisonSettings) -> list[records.Record]:
    """Run every method for every seed and write each record as soon as it is finished.

    With `resume`, runs whose records are in the output folder are skipped.

    Raises:
      UserError: anything that cannot work, before anything is written.
    """
    inputs.join(settings.distributed)
    saved = saving.read(pathlib.Path(settings.store)) if settings.store else None
    settings, mesh, model = inputs.begin(settings, saved)
    rows = inputs.load_rows(settings, settings.task, settings.train_file, settings.eval_file)
    if saved:
        identity = model.identity(settings.dtype, settings.deterministic)
        saved.check(identity, rows.task, truncation=settings.truncation, label_token=settings.label_token)
        drawn = [saved.split]
    else:
        shots = shared.SHOTS if settings.shots is None else settings.shots or None
        demo_shots = inputs.demo_shots(settings.demo_shots, shots, rows, model)
        seeds = dict.fromkeys(settings.seeds or shared.SEEDS)
        drawn = [splits.draw(rows.train, rows.task, shots=shots, demo_shots=demo_shots, seed=seed) for seed in seeds]
    runs = [run for split in drawn for run in _runs(settings, rows, model, split, saved.digest if saved else "")]
    done = records.finished(pathlib.Path(settings.output), runs) if settings.resume else {}
    missing = [run for run in runs if run.file_name not in done]
    passes = run_lib.passes_of(model, missing, anchors_are_stored=bool(saved))
    load_store = functools.partial(saved.load, options=settings.datastore) if saved else None
    for record in engine.run(settings, passes, mesh, load_store=load_store):
        done[record.file_name] = record
    return [done[run.file_name] for run in runs]


def _runs(
    settings: shared.ComparisonSettings,
    rows: inputs.Rows,
    model: inputs.Model,
    split: splits.FewShotSplit,
    saved_digest: str,
) -> Iterator[run_lib.Run]:
    """Yield the run of each method that applies to a split; log which methods do not."""
    problem = run_lib.problem_of(settings, rows.task, split, rows.evaluation, model)
    methods, left_out = registry.select(settings.method_names, problem)
    names_by_reason = collections.defaultdict(list)
    for name, reason in left_out.items():
        names_by_reason[reason].append(name)
    for reason, names in names_by_reason.items():
        logging.log_first_n(logging.WARNING, "left out: %s: %s", 100, ", ".join(names), reason)
    for declared in methods:
        options = getattr(settings.options, declared.name)
        declared.prepare(problem, options)
        yield run_lib.Run.of(settings, declared.name, declared, options, problem, model, saved=saved_digest)
