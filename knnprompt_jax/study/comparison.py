"""Compare methods on the same splits: one pass per set of demonstrations, one record per seed and method, one table."""

import collections
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from absl import logging

from knnprompt_jax import lm, text_tables
from knnprompt_jax.methods import all_methods
from knnprompt_jax.methods import method as method_lib
from knnprompt_jax.report import records
from knnprompt_jax.settings import grids
from knnprompt_jax.study import engine
from knnprompt_jax.study import job_inputs as inputs


def run(settings: grids.ComparisonSettings) -> list[records.Record]:
    """Run every method for every seed and write each record as soon as it is finished.

    With `resume`, runs whose records are in the output folder are skipped.

    Raises:
        UserError: settings or rows that cannot work, before anything is written; or states that are not finite, after
            the records of earlier groups are written.
    """
    inputs.join_processes(settings.distributed)
    return compare(settings, inputs.read_model(settings.model, settings, context=settings.context))


def compare(settings: grids.ComparisonSettings, model: lm.LanguageModel) -> list[records.Record]:
    """Run the comparison with a given model, as `run`."""
    problems = inputs.read_problems(settings, model)
    runs = _make_runs(settings, model, problems)
    folder = pathlib.Path(settings.output)
    done = records.finished(folder, runs) if settings.resume else {}
    missing = [run for run in runs if run.file_name not in done]
    for record in engine.run_groups(engine.group_runs(missing), folder, settings.cache_gb):
        done[record.file_name] = record
    return [done[run.file_name] for run in runs]


def _make_runs(
    settings: grids.ComparisonSettings, model: lm.LanguageModel, problems: Sequence[method_lib.Problem]
) -> list[engine.MethodRun]:
    """Return a run for each problem and each method that applies to it; log why "all" excludes methods."""
    runs = []
    excluded: dict[str, str] = {}
    source = inputs.row_options(settings)
    for problem in problems:
        selected, reasons = all_methods.select(settings.methods, problem, settings)
        excluded |= reasons
        for method in selected:
            run = engine.MethodRun(
                name=method.name,
                method=method,
                options=method.options(settings),
                problem=problem,
                model=model,
                store_options=settings.datastore,
                source=source,
            )
            runs.append(run)
    for reason in dict.fromkeys(excluded.values()):
        names = [name for name, because in excluded.items() if because == reason]
        logging.warning("excluded: %s: %s", ", ".join(names), reason)
    return runs


def describe_comparison(done: Sequence[records.Record]) -> str:
    """Return the table of methods, with the lines above and below it."""
    by_method = collections.defaultdict(list)
    for record in done:
        by_method[all_methods.get(record.method).title].append(record)
    first = done[0]
    header = ["method", "accuracy %", "LM tokens"]
    if first.is_uneven:
        header.insert(2, "macro F1 %")
    rows = []
    for title, method_records in by_method.items():
        rows += _rows_of(title, method_records)
    num_seeds = len({record.seed for record in done})
    spread = "Mean ± standard deviation over seeds. " if num_seeds > 1 else ""
    sizes = _sizes(first)
    or_fewer = " or fewer" if len(sizes) > 1 else ""
    return "\n".join(
        [
            f"task {first.task}, model {first.model}, {len(first.true)} test rows "
            f"(most common class: {100 * first.most_common:.1f} %), {num_seeds} seed{'s' * (num_seeds != 1)}",
            f"{first.shots} train rows per class{or_fewer}: {'; '.join(sizes)}",
            "",
            text_tables.render(header, rows),
            "",
            f"{spread}LM tokens are per seed and count the demonstrations only once.",
            *_describe_pass(done),
            *_describe_truncation(by_method),
            *_describe_notes(by_method),
        ]
    )


def _rows_of(title: str, method_records: Sequence[records.Record]) -> list[list[str]]:
    """Return the row of a method and, if it kept the best of several candidates, rows for their mean and the worst."""
    row = [title, text_tables.spread([record.accuracy for record in method_records])]
    if method_records[0].is_uneven:
        row.append(text_tables.spread([record.macro_f1 for record in method_records]))
    row.append(f"{np.mean([record.lm_tokens for record in method_records]):,.0f}")
    rows = [row]
    candidates = [record.candidates for record in method_records if record.candidates]
    if candidates:
        count = len(candidates[0])
        empty = [""] * (len(row) - 2)
        means = [float(np.mean(accuracies)) for accuracies in candidates]
        worst = [min(accuracies) for accuracies in candidates]
        rows.append([f"· mean of its {count}", text_tables.spread(means), *empty])
        rows.append([f"· worst of its {count}", text_tables.spread(worst), *empty])
    return rows


def _describe_pass(done: Sequence[records.Record]) -> list[str]:
    """Return a line about the pass that methods share, over the seeds that were read; none if they share none.

    The records of a seed share one pass and repeat its time. Without demonstrations, all seeds share one pass.
    """
    sharing = [record for record in done if all_methods.get(record.method).needs]
    by_seed = list({record.seed: record for record in sharing}.values())
    if not by_seed:
        return []
    read = [record for record in by_seed if record.seconds["language_model"]]
    if not read:
        return ["An earlier run had read all prompts."]
    seconds = np.mean([record.seconds["language_model"] for record in read])
    rate = np.mean([record.prompts_per_second for record in read])
    seed_part = ""
    cached = ""
    if any(record.demo_shots for record in by_seed):
        seed_part = " of a seed"
        if len(read) < len(by_seed):
            num_cached = len(by_seed) - len(read)
            cached = f"; an earlier run had read those of {num_cached} of {len(by_seed)} seeds"
    # Prompts from the cache do not count. Records round both factors, hence "about".
    count = np.mean([record.seconds["language_model"] * record.prompts_per_second for record in read])
    pace = f"{seconds:.2f} seconds ({rate:.1f} prompts/s{cached})"
    return [f"The model read about {count:,.0f} prompts{seed_part} in {pace}."]


def _describe_truncation(by_method: Mapping[str, Sequence[records.Record]]) -> Iterator[str]:
    """Name the methods with truncated prompts; those with the same share stand together."""
    titles = collections.defaultdict(list)
    for title, method_records in by_method.items():
        truncated = sum(record.truncated_prompts for record in method_records)
        prompts = sum(record.prompts for record in method_records)
        titles[truncated, prompts].append(title)
    for (truncated, prompts), names in titles.items():
        if truncated:
            yield f"{truncated} of {prompts} prompts truncated ({100 * truncated / prompts:.1f} %): {', '.join(names)}."


def _describe_notes(by_method: Mapping[str, Sequence[records.Record]]) -> Iterator[str]:
    """Yield each method's note; if its notes differ between seeds, the note of its first seed."""
    for title, method_records in by_method.items():
        notes = dict.fromkeys(record.note for record in method_records)
        note = next(iter(notes))
        if note:
            seed = f", seed {method_records[0].seed}" if len(notes) > 1 else ""
            yield f"{title}{seed}: {note}."


def _sizes(record: records.Record) -> list[str]:
    """Count the demonstrations and anchors of each class; classes with the same counts stand together."""
    words = collections.defaultdict(list)
    for counts in record.class_counts.values():
        words[counts["demonstrations"], counts["anchors"]].append(counts["word"])
    sizes = []
    for (demonstrations, anchors), labels in words.items():
        size = f"{demonstrations} demonstration{'s' * (demonstrations != 1)}, {anchors} anchor{'s' * (anchors != 1)}"
        sizes.append(size if len(words) == 1 else f"{size} of {', '.join(labels)}")
    return sizes
