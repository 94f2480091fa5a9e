"""Compare methods on the same splits: one pass per set of demonstrations, one record per seed and method, one table."""

import collections
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from absl import logging

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.cli import shared_settings as shared
from knnprompt_jax.common import parallel, text_tables
from knnprompt_jax.inference import lm
from knnprompt_jax.methods import all_methods
from knnprompt_jax.methods import method as method_lib
from knnprompt_jax.report import records
from knnprompt_jax.study import engine, job_inputs
from knnprompt_jax.tasks import splits


def run(settings: grids.ComparisonSettings, model: lm.LanguageModel | None = None) -> list[records.Record]:
    """Run every method for every seed and write each record as soon as it is finished.

    With `resume`, runs whose records are in the output folder are skipped.

    Args:
        settings: the options of the comparison.
        model: replaces the model of the settings.

    Raises:
        UserError: settings or rows that cannot work, before anything is written; or states that are not finite, after
            the records of earlier groups are written.
    """
    parallel.start(**settings.distributed.to_dict())
    model = model or job_inputs.read_model(settings.model, settings, context=settings.context)
    runs = _make_runs(settings, model)
    folder = pathlib.Path(settings.output)
    done = records.finished(folder, runs) if settings.resume else {}
    groups = engine.group_runs(run for run in runs if run.file_name not in done)
    for record in engine.run_groups(groups, folder, settings.cache_gb):
        done[record.file_name] = record
    return [done[run.file_name] for run in runs]


def read_problems(settings: grids.ComparisonSettings, model: lm.LanguageModel) -> list[method_lib.Problem]:
    """Return the problem of each seed of a comparison.

    Raises:
        UserError: rows that cannot be read or drawn.
    """
    rows = job_inputs.load_rows(settings, settings.task, settings.train_file, settings.eval_file)
    shots = shared.SHOTS if settings.shots is None else settings.shots
    per_class_demos = job_inputs.demo_shots(settings.demo_shots, shots, rows, model)
    problems = []
    for seed in dict.fromkeys(settings.seeds or shared.SEEDS):
        split = splits.draw(rows.train, rows.task, shots=shots, demo_shots=per_class_demos, seed=seed)
        problems.append(method_lib.Problem(rows.task, split, rows.evaluation, model.tokenize, settings.label_token))
    return problems


def _make_runs(settings: grids.ComparisonSettings, model: lm.LanguageModel) -> list[engine.MethodRun]:
    """Return a run for each seed and each method that applies to its problem; log why "all" excludes methods."""
    runs = []
    excluded: dict[str, str] = {}
    for problem in read_problems(settings, model):
        selected, reasons = all_methods.select(settings.methods, problem, settings)
        excluded |= reasons  # Of several seeds, the last one's reason is logged.
        for method in selected:
            run = engine.MethodRun(
                name=method.name,
                method=method,
                options=method.options(settings),
                problem=problem,
                model=model,
                store_options=settings.datastore,
                source=job_inputs.row_options(settings),
            )
            runs.append(run)
    for reason in dict.fromkeys(excluded.values()):
        names = [name for name, because in excluded.items() if because == reason]
        logging.warning("excluded: %s: %s", ", ".join(names), reason)
    return runs


def describe_comparison(done: Sequence[records.Record]) -> str:
    """Return the printed report: a summary, the table of methods, and notes."""
    by_method = collections.defaultdict(list)
    for record in done:
        by_method[all_methods.get(record.method).title].append(record)
    first = done[0]
    rows = [row for title, method_records in by_method.items() for row in _rows_of(title, method_records)]
    header = ["method", "accuracy %", *(["macro F1 %"] if first.is_uneven else []), "LM tokens"]
    num_seeds = len({record.seed for record in done})
    spread = "Mean ± standard deviation over seeds. " if num_seeds > 1 else ""
    return "\n".join(
        [
            f"task {first.task}, model {first.model}, {len(first.true)} test rows "
            f"(most common class: {100 * first.most_common:.1f} %), {num_seeds} seed{'s' * (num_seeds != 1)}",
            _sizes(first) if any(record.method != "auto" for record in done) else f"{first.shots} train rows per class",
            "",
            text_tables.render(header, rows),
            "",
            f"{spread}LM tokens are per seed and count the demonstrations only once.",
            *_describe_methods(by_method),
        ]
    )


def _rows_of(title: str, method_records: Sequence[records.Record]) -> list[list[str]]:
    """Return the row of a method and, if it chose the best of several candidates, a row for the mean of these."""
    row = [title, text_tables.spread([record.accuracy for record in method_records])]
    if method_records[0].is_uneven:
        row.append(text_tables.spread([record.macro_f1 for record in method_records]))
    row.append(f"{np.mean([record.lm_tokens for record in method_records]):,.0f}")
    candidates = [record.candidates for record in method_records if record.candidates]
    if not candidates:
        return [row]
    means = text_tables.spread([float(np.mean(accuracies)) for accuracies in candidates])
    return [row, [f"· mean of its {len(candidates[0])}", means, *[""] * (len(row) - 2)]]


def _describe_methods(by_method: Mapping[str, Sequence[records.Record]]) -> Iterator[str]:
    """Yield each method's truncated prompts and its note; if notes differ between seeds, that of its first seed."""
    for title, method_records in by_method.items():
        truncated = sum(record.truncated_prompts for record in method_records)
        prompts = sum(record.prompts for record in method_records)
        if truncated:
            yield f"{title}: {truncated} of {prompts} prompts truncated ({100 * truncated / prompts:.1f} %)."
        first = method_records[0]
        if first.note:
            seed = f", seed {first.seed}" if len({record.note for record in method_records}) > 1 else ""
            yield f"{title}{seed}: {first.note}."


def _sizes(record: records.Record) -> str:
    """Count the train rows, demonstrations and anchors of each class; classes with equal counts share an entry."""
    words = collections.defaultdict(list)
    for counts in record.class_counts.values():
        words[f"{counts['demonstrations']} demonstrations, {counts['anchors']} anchors"].append(counts["word"])
    if len(words) == 1:
        return f"{record.shots} train rows per class: {next(iter(words))}"
    sizes = [f"{size} of {', '.join(labels)}" for size, labels in words.items()]
    return f"up to {record.shots} train rows per class: {'; '.join(sizes)}"
