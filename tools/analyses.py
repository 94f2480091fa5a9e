"""Analyses along other axes than m, the paper's own numbers, and comparisons of SmolLM2 with itself."""

import collections
import dataclasses
import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from knnprompt_jax.report import names, published, results
from knnprompt_jax.report import records as records_lib
from tools import intervals, pool_tables, scales

_SKEWED = {"A": "train skewed", "B": "test skewed", "C": "train and test skewed"}


def one_demonstration(
    analyses: Sequence[records_lib.Record], grown: scales.Scale, m: int, without: str = ""
) -> intervals.Difference:
    """Return the accuracy difference between two settings of SmolLM2's kNN Prompting.

    The first has one demonstration and m = 32. The second has M_T demonstrations and another m.
    """
    records = [record for record in analyses if record.cell.get("k") == 3]
    few = scales.Scale([dataclasses.replace(record, cell={}) for record in records])
    differences = []
    for task, seeds in grown.shared("smollm2", m).items():
        if task != without:
            ours = few.right("smollm2", "knn", 32, task, seeds)
            theirs = grown.right("smollm2", "knn", m, task, seeds)
            differences.append(ours - theirs)
    return intervals.bootstrap(differences)


def on_tasks(
    scale: scales.Scale, method: str, m: int, tasks: Sequence[str] = ("sst2", "mpqa"), model: str = "smollm2"
) -> list[str]:
    """Return kNN Prompting minus another method on each task, over the seeds that both have; "–" without any."""
    ours = (model, "knn", m)
    theirs = (model, method, m)
    texts = []
    for task in tasks:
        seeds = sorted({*scale.seeds(*ours, task)} & {*scale.seeds(*theirs, task)})
        texts.append(str(scale.difference(ours, theirs, {task: seeds})) if seeds else "–")
    return texts


def truncated(scale: scales.Scale, method: str) -> str:
    """Return the share of a method's prompts on SST2 that were truncated."""
    found = [record for record in scale.records if record.method == method and record.task == "sst2"]
    share = sum(each.truncated_prompts for each in found) / sum(each.prompts for each in found)
    return f"{100 * share:.0f} %"


def turned(scale: scales.Scale, claims: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Yield each answer that differs with KL(anchor ‖ test); claims are (text, ours, theirs)."""
    for (text, _, theirs), model, task in itertools.product(claims, scale.models, ("", scales.APART)):
        if theirs in ("knn_kl_labels", "knn_centroid"):  # They were run in one direction only.
            continue
        before = scales.verdict(scale.differences(model, "knn", theirs, task=task))
        after = scales.verdict(scale.differences(model, "knn_reverse_kl", theirs, task=task))
        if before != after:
            where = scales.MODELS[model].brief
            if task:
                where += f" on {names.task(task)}"
            claim = text.partition("minus ")[2].partition(" (")[0]
            yield f"{claim}, {where}: {before} → {after}"


def papers(
    tasks: Sequence[str],
    ours: tuple[str, int],
    theirs: tuple[str, int],
    table: str = "data_scaling",
    size: str = "1.5B",
    their_table: str = "",
) -> str:
    """Return the difference between two (method, m) in the paper's tables, averaged over tasks; m = 0 is M_T."""
    our_scores = _printed(table, size, tasks, *ours)
    their_scores = _printed(their_table or table, size, tasks, *theirs)
    lead = statistics.fmean(score.mean for score in our_scores) - statistics.fmean(score.mean for score in their_scores)
    return f"{lead:+.1f}"


def papers_spread(size: str, tasks: Sequence[str], shots: Sequence[int]) -> list[str]:
    """Return the paper's row for the table of standard deviations over seeds."""
    theirs = [score.std for score in _printed("data_scaling", size, tasks, "icl", 0)]
    texts = [f"paper, {size}", f"{statistics.fmean(theirs):.1f}"]
    for m in shots:
        ours = [score.std for score in _printed("data_scaling", size, tasks, "knn", m)]
        texts.append(f"{statistics.fmean(ours):.1f} ({np.less(ours, theirs).sum()} of {len(ours)})")
    return texts


def _printed(table: str, size: str, tasks: Sequence[str], method: str, m: int) -> list[results.Score]:
    """Return the paper's scores of a method on these tasks."""
    found = published.of(table)
    found = found[found.task.isin(tasks) & (found.model == published.SIZES[size])]
    return found.score[(found.method == method) & (found.m == m)].tolist()


def of(experiment: str, analyses: Sequence[records_lib.Record]) -> list[records_lib.Record]:
    """Return the records of an experiment."""
    return [record for record in analyses if record.experiment == experiment]


def splits(analyses: Sequence[records_lib.Record]) -> list[records_lib.Record]:
    """Return the records of the split sizes that every task has; `row` and `column` of their cells are the sizes."""
    by_size = collections.defaultdict(list)
    for record in of("split_strategy", analyses):
        row = names.counted(record.demo_shots, "demonstration")
        column = names.counted(int(record.cell["anchor_shots"]), "anchor")
        by_size[row, column].append(dataclasses.replace(record, cell={"row": row, "column": column}))
    complete = max(map(len, by_size.values()))
    return [record for records in by_size.values() if len(records) == complete for record in records]


def split_effect(analyses: Sequence[records_lib.Record], axis: str) -> intervals.Difference:
    """Return the difference between the largest and the smallest number on an axis, averaged over the other axis.

    The axis "row" is demonstrations per class, "column" anchors per class.
    """
    records = splits(analyses)
    numbers = [int(record.cell[axis].split()[0]) for record in records]
    signs = {max(numbers): 1, min(numbers): -1}
    sums: dict[str, dict[int, np.ndarray]] = collections.defaultdict(dict)
    for record, number in zip(records, numbers, strict=True):
        by_seed = sums[record.task]
        by_seed[record.seed] = by_seed.get(record.seed, 0) + signs.get(number, 0) * intervals.right_rows(record)
    difference = intervals.bootstrap([_stack(by_seed) for by_seed in sums.values()])
    other = {"row": "column", "column": "row"}[axis]
    num_other = len({record.cell[other] for record in records})
    return intervals.Difference(*(value / num_other for value in difference))


def skew_effect(
    analyses: Sequence[records_lib.Record], column: str, method: str, other: str = ""
) -> intervals.Difference:
    """Return the change of a method's accuracy from balanced rows to a column.

    With `other`, subtract the change of the other method.
    """
    signs = {(column, method): 1, ("balanced", method): -1, (column, other): -1, ("balanced", other): 1}
    changes: dict[str, dict[bool, dict[int, np.ndarray]]] = {}
    for record in skewed(analyses):
        sign = signs.get((record.cell["column"], record.method))
        if sign:
            is_test_skewed = record.cell["column"].startswith("test")  # These have other test rows.
            by_seed = changes.setdefault(record.task, {}).setdefault(is_test_skewed, {})
            by_seed[record.seed] = by_seed.get(record.seed, 0) + sign * intervals.right_rows(record)
    return intervals.bootstrap([tuple(map(_stack, parts.values())) for parts in changes.values()])


def _stack(by_seed: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return the rows of all seeds, [seeds, rows]."""
    return np.stack([by_seed[seed] for seed in sorted(by_seed)])


def case_study(analyses: Sequence[records_lib.Record], task: str) -> str:
    """Return the accuracies of in-context learning and kNN Prompting in the case study of a task, in %."""
    found = {record.method: record for record in of("case_study", analyses) if record.task == task}
    return " and ".join(f"{100 * found[method].accuracy:.1f} %" for method in ("icl", "knn"))


def beside_fine_tuning(
    analyses: Sequence[records_lib.Record], matched: scales.Scale, model: str, methods: Sequence[str], m: int = 128
) -> list[str]:
    """Return the mean accuracy in % of fine-tuning, then of other methods, on the binary tasks and on TREC.

    The others are averaged over the splits that were fine-tuned.
    """
    tasks = (*pool_tables.BINARY, scales.APART)
    tuned = {
        (record.task, record.seed): record.accuracy
        for record in analyses
        if (record.method, record.shots) == ("fine_tuning", m) and record.task in tasks
    }
    columns = [tuned]
    for method in methods:
        found = [one for one in matched.records if (one.model, one.method, one.shots) == (model, method, m)]
        columns.append({(one.task, one.seed): one.accuracy for one in found if (one.task, one.seed) in tuned})
    texts = []
    for column in columns:
        if column.keys() != tuned.keys():
            raise ValueError(f"{model} lacks runs of {sorted(tuned.keys() - column.keys())}")
        apart = [accuracy for (task, _), accuracy in column.items() if task == scales.APART]
        binary = [accuracy for (task, _), accuracy in column.items() if task != scales.APART]
        texts.append(f"{100 * statistics.fmean(binary):.1f} / {100 * statistics.fmean(apart):.1f}")
    return texts


def fine_tuned(
    analyses: Sequence[records_lib.Record], matched: scales.Scale, model: str, methods: Sequence[str], m: int
) -> list[records_lib.Record]:
    """Return the records of fine-tuning, and those of other methods on the same splits; columns are tasks."""
    found = [record for record in analyses if (record.method, record.shots) == ("fine_tuning", m)]
    splits = {(record.task, record.seed) for record in found}
    for record in matched.records:
        is_shown = (record.model, record.shots) == (model, m) and record.method in methods
        if is_shown and (record.task, record.seed) in splits:
            found.append(record)
    return list(map(_by_method_and_task, found))


def fine_tuned_seeds(analyses: Sequence[records_lib.Record], m: int) -> str:
    """Return the number of seeds of fine-tuning in words; raise ValueError unless every task has the same seeds."""
    by_task = collections.defaultdict(set)
    for record in analyses:
        if (record.method, record.shots) == ("fine_tuning", m):
            by_task[record.task].add(record.seed)
    (seeds,) = set(map(frozenset, by_task.values()))
    return names.counted(len(seeds), "seed")


def upper_bound(analyses: Sequence[records_lib.Record]) -> list[records_lib.Record]:
    """Return the records of the best of random prompts, and of the methods beside it; columns are tasks."""
    return list(map(_by_method_and_task, of("upper_bound", analyses)))


def printed_upper_bound() -> list[list[str]]:
    """Return the paper's rows for the table of the upper bound."""
    found = published.of("upper_bound")
    found = found[found.model == published.SIZES["1.5B"]]
    rows = []
    for method in ("demonstration_upper_bound", "icl", "knn"):
        scores = {row.task: row.score for row in found[found.method == method].itertuples()}
        rows.append(
            [f"Paper, 1.5B: {names.method(method)}", *(f"{scores[task].mean:.1f}" for task in ("sst2", "trec"))]
        )
    return rows


def _by_method_and_task(record: records_lib.Record) -> records_lib.Record:
    return dataclasses.replace(record, cell={"row": names.method(record.method), "column": names.task(record.task)})


def skewed(analyses: Sequence[records_lib.Record]) -> list[records_lib.Record]:
    """Return the records of prior reliance with the strongest skew of train rows, test rows or both, or without any."""
    own = of("prior_reliance", analyses)
    strongest = min(record.cell["ratio"] for record in own)
    columns = {(setting, strongest): column for setting, column in _SKEWED.items()} | {("A", 0.5): "balanced"}
    found = []
    for record in own:
        column = columns.get((record.cell["setting"], record.cell["ratio"]))
        if column:
            found.append(dataclasses.replace(record, cell={"row": names.method(record.method), "column": column}))
    return found


def most_common(analyses: Sequence[records_lib.Record]) -> list[str]:
    """Return a row for the table of skewed classes: the accuracy of predicting the test rows' most common class."""
    shares = collections.defaultdict(list)
    for record in skewed(analyses):
        shares[record.cell["column"]].append(100 * record.most_common)
    return [names.MOST_COMMON, *(f"{statistics.fmean(shares[column]):.1f}" for column in sorted(shares)), "–", "–"]


def printed_skewed() -> list[list[str]]:
    """Return the paper's rows for the table of skewed classes."""
    table = published.tables()["prior_reliance"]
    found = {(row["setting"], published.method_of(row["method"])): row["ratio"] for row in table["rows"]}
    settings = [("A", "0.5"), ("B", "0.125"), ("C", "0.125"), ("A", "0.125")]  # As the columns, in alphabetical order.
    rows = []
    for method in ("contextual_calibration", "icl", "knn"):
        accuracies = [f"{found[setting, method][ratio]:.1f}" for setting, ratio in settings]
        changes = [f"{found[setting, method]['0.125'] - found[setting, method]['0.5']:+.1f}" for setting in "BA"]
        rows.append([f"Paper, 1.5B: {names.method(method)}", *accuracies, *changes])
    return rows
