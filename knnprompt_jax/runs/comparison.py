"""Compare methods on the same splits: one language-model pass per seed, one record per seed and method, and one table of all."""

import collections
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from absl import logging

from knnprompt_jax import lm, tables
from knnprompt_jax.methods import method as method_lib
from knnprompt_jax.methods import registry
from knnprompt_jax.runs import engine, inputs, records
from knnprompt_jax.runs import run as run_lib
from knnprompt_jax.settings import shared


def run(settings: shared.ComparisonSettings) -> list[records.Record]:
    """Run every method for every seed and write each record as soon as it is finished.

    With `resume`, runs whose records are in the output folder are skipped.

    Raises:
        UserError: anything that cannot work, before anything is written.
    """
    inputs.join_processes(settings.distributed)
    model = inputs.read_model(settings.model, settings, context=settings.context)
    problems = inputs.read_problems(settings, model)
    runs = _plan(settings, model, problems)
    folder = pathlib.Path(settings.output)
    done = records.finished(folder, runs) if settings.resume else {}
    missing = [run for run in runs if run.file_name not in done]
    for record in engine.run(run_lib.passes_of(model, missing), folder, settings.cache_gb):
        done[record.file_name] = record
    return [done[run.file_name] for run in runs]


def _plan(
    settings: shared.ComparisonSettings, model: lm.LanguageModel, problems: Sequence[method_lib.Problem]
) -> list[run_lib.Run]:
    """Return a run for each problem and each method that applies to it; log why "all" leaves methods out."""
    runs = []
    left_out: dict[str, dict[str, None]] = collections.defaultdict(dict)
    source = inputs.source_of(settings)
    for problem in problems:
        selected, reasons = registry.select(settings.method_names, problem, settings)
        for name, reason in reasons.items():
            left_out[reason][name] = None
        runs += [
            run_lib.Run(method, method.options(settings), problem, model, settings.datastore, source=source)
            for method in selected
        ]
    for reason, names in left_out.items():
        logging.warning("left out: %s: %s", ", ".join(names), reason)
    return runs


def describe_comparison(done: Sequence[records.Record]) -> str:
    """Return the table of methods, with the lines above and below it."""
    first = done[0]
    rows, notes, by_method = [], [], collections.defaultdict(list)
    for record in done:
        by_method[registry.get(record.method).title].append(record)
    for title, method_records in by_method.items():
        row = [title, tables.spread([record.accuracy for record in method_records])]
        if first.is_uneven:
            row.append(tables.spread([record.macro_f1 for record in method_records]))
        row.append(f"{np.mean([record.lm_tokens for record in method_records]):,.0f}")
        rows.append(row)
        if candidates := [record.candidates for record in method_records if record.candidates]:
            count, empty = len(candidates[0]), [""] * (len(row) - 2)
            rows.append(
                [
                    f"· mean of its {count}",
                    tables.spread([float(np.mean(accuracies)) for accuracies in candidates]),
                    *empty,
                ]
            )
            rows.append(
                [f"· worst of its {count}", tables.spread([min(accuracies) for accuracies in candidates]), *empty]
            )
        own_notes = dict.fromkeys(record.note for record in method_records)
        if note := next(iter(own_notes)):
            notes.append(f"{title}{f', seed {method_records[0].seed}' if len(own_notes) > 1 else ''}: {note}.")
    header = ["method", "accuracy %", *["macro F1 %"] * first.is_uneven, "LM tokens"]
    num_seeds = len({record.seed for record in done})
    seeds = "1 seed" if num_seeds == 1 else f"{num_seeds} seeds"
    return "\n".join(
        [
            f"task {first.task}, model {first.model}, {len(first.true)} test rows "
            f"(most common class: {100 * first.most_common:.1f} %), {seeds}",
            f"{first.shots} train rows per class{' or fewer' * ('; ' in (sizes := _sizes(first)))}: {sizes}",
            "",
            tables.render(header, rows),
            "",
            "Mean ± standard deviation over seeds. LM tokens are per seed and count the demonstrations only once.",
            *_reading(done),
            *_truncated(by_method),
            *notes,
        ]
    )


def _reading(done: Sequence[records.Record]) -> list[str]:
    """Return a line about the pass that methods share, over the seeds that were read; none if they share none.

    All records of a seed repeat it; without demonstrations, those of all seeds do.
    """
    by_seed = list({record.seed: record for record in done if registry.get(record.method).needs}.values())
    if not by_seed:
        return []
    read = [record for record in by_seed if record.seconds["language_model"]]
    if not read:
        return ["An earlier run had read all prompts."]
    seconds = np.mean([record.seconds["language_model"] for record in read])
    rate = np.mean([record.prompts_per_second for record in read])
    of, part = "", ""
    if any(record.demo_shots for record in by_seed):
        of = " of a seed"
        if earlier := len(by_seed) - len(read):
            part = f"; an earlier run had read those of {earlier} of {len(by_seed)} seeds"
    return [f"The model read all prompts{of} in {seconds:.2f} seconds ({rate:.1f} prompts/s{part})."]


def _sizes(record: records.Record) -> str:
    """Count the demonstrations and anchors of each class; classes with the same counts stand together."""
    words = collections.defaultdict(list)
    for counts in record.class_counts.values():
        words[counts["demonstrations"], counts["anchors"]].append(counts["word"])
    sizes = {
        f"{demonstrations} demonstration{'s' * (demonstrations != 1)}, {anchors} anchor{'s' * (anchors != 1)}": ", ".join(
            labels
        )
        for (demonstrations, anchors), labels in words.items()
    }
    return "; ".join(sizes) if len(sizes) == 1 else "; ".join(f"{size} of {labels}" for size, labels in sizes.items())


def _truncated(by_method: Mapping[str, Sequence[records.Record]]) -> Iterator[str]:
    """Name the methods with truncated prompts; those with the same share stand together."""
    titles = collections.defaultdict(list)
    for title, method_records in by_method.items():
        truncated = sum(record.truncated_prompts for record in method_records)
        titles[truncated, sum(record.prompts for record in method_records)].append(title)
    for (truncated, prompts), names in titles.items():
        if truncated:
            yield f"{truncated} of {prompts} prompts truncated ({100 * truncated / prompts:.1f} %): {', '.join(names)}."
