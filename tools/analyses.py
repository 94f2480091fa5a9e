"""Analyses along other axes than m, the paper's own numbers, and comparisons of SmolLM2 with itself."""

import collections
import dataclasses
import itertools
import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from knnprompt_jax.report import names, published
from knnprompt_jax.runs import records as records_lib
from tools import intervals, scales

_SKEWED = {"A": "train skewed", "B": "test skewed", "C": "train and test skewed"}


def one_demonstration(
    analyses: Sequence[records_lib.Record], grown: scales.Scale, m: int, without: str = ""
) -> intervals.Difference:
    """Return SmolLM2's kNN Prompting with one demonstration and m = 32, minus that with M_T demonstrations at another m."""
    records = [record for record in analyses if record.cell.get("k") == 3]
    few = scales.Scale([dataclasses.replace(record, cell={}) for record in records])
    differences = []
    for task, seeds in grown.shared("smollm2", m).items():
        if task != without:
            ours, theirs = few.right("smollm2", "knn", 32, task, seeds), grown.right("smollm2", "knn", m, task, seeds)
            differences.append(ours - theirs)
    return intervals.bootstrap(differences)


def on_tasks(scale: scales.Scale, method: str, m: int, tasks: Sequence[str] = ("sst2", "mpqa")) -> list[str]:
    """Return SmolLM2's kNN Prompting minus another method on each task, over the seeds that both have."""
    ours, theirs = (("smollm2", name, m) for name in ("knn", method))
    shared = {task: sorted({*scale.seeds(*ours, task)} & {*scale.seeds(*theirs, task)}) for task in tasks}
    return [str(scale.difference(ours, theirs, {task: seeds})) for task, seeds in shared.items()]


def truncated(scale: scales.Scale, method: str) -> str:
    """Return the share of a method's prompts on SST2 that were truncated."""
    found = [record for record in scale.records if record.method == method and record.task == "sst2"]
    return f"{sum(each.truncated_prompts for each in found) / sum(each.prompts for each in found):.0%}"


def turned(scale: scales.Scale, claims: Sequence[tuple[str, str, str, Sequence[int]]]) -> Iterator[str]:
    """Yield each answer that differs if kNN Prompting uses KL(anchor ‖ test); claims are (text, ours, theirs, shots)."""
    for (text, _, theirs, _), model, task in itertools.product(claims, scale.models, ("", scales.APART)):
        if theirs not in ("knn_kl_labels", "knn_centroid"):  # They were run in one direction only.
            before, after = (
                intervals.verdict(scale.differences(model, name, theirs, task=task))
                for name in ("knn", "knn_reverse_kl")
            )
            if before != after:
                place = f"{scales.MODELS[model].brief}{f' on {names.task(task)}' if task else ''}"
                yield f"{text.partition('minus ')[2].partition(' (')[0]}, {place}: {before} → {after}"


def papers(
    tasks: Sequence[str],
    ours: tuple[str, int],
    theirs: tuple[str, int],
    table: str = "data_scaling",
    size: str = "1.5B",
    their_table: str = "",
) -> str:
    """Return the difference between two (method, m) in the paper's tables, averaged over tasks; m = 0 is M_T."""
    (ours_mean, _), (theirs_mean, _) = (
        _means(table, size, tasks, *ours),
        _means(their_table or table, size, tasks, *theirs),
    )
    return f"{ours_mean - theirs_mean:+.1f}"


def papers_spread(size: str, tasks: Sequence[str], shots: Sequence[int]) -> list[str]:
    """Return the paper's row for the table of standard deviations over seeds."""
    (_, theirs), *ours = (
        _means("data_scaling", size, tasks, *each) for each in (("icl", 0), *(("knn", m) for m in shots))
    )
    texts = [f"{statistics.fmean(stds):.1f} ({np.less(stds, theirs).sum()} of {len(stds)})" for _, stds in ours]
    return [f"paper, {size}", f"{statistics.fmean(theirs):.1f}", *texts]


def _means(table: str, size: str, tasks: Sequence[str], method: str, m: int) -> tuple[float, list[float]]:
    """Return the mean over tasks of the paper's means, and its standard deviations."""
    found = published.of(table)
    found = found[found.task.isin(tasks) & (found.model == published.SIZES[size])]
    scores = found.score[(found.method == method) & (found.m == m)]
    return statistics.fmean(score.mean for score in scores), [score.std for score in scores]


def of(experiment: str, analyses: Sequence[records_lib.Record]) -> list[records_lib.Record]:
    return [record for record in analyses if record.experiment == experiment]


def splits(analyses: Sequence[records_lib.Record]) -> list[records_lib.Record]:
    """Return the records of the split sizes that every task has."""
    places = collections.defaultdict(list)
    for record in of("split_strategy", analyses):
        row, column = (
            f"{count} {noun}{'s' * (count > 1)}"
            for count, noun in ((record.demo_shots, "demonstration"), (int(record.cell["anchor_shots"]), "anchor"))
        )
        places[row, column].append(dataclasses.replace(record, cell={"row": row, "column": column}))
    most = max(map(len, places.values()))
    return [record for records in places.values() if len(records) == most for record in records]


def split_effect(analyses: Sequence[records_lib.Record], axis: str) -> intervals.Difference:
    """Return the difference between the most and the fewest of an axis, averaged over the other.

    The axis "row" is demonstrations per class, "column" anchors per class.
    """
    sums: dict[str, np.ndarray] = {}
    records = splits(analyses)
    counts = {int(record.cell[axis].split()[0]) for record in records}
    for record in records:
        sign = {max(counts): 1, min(counts): -1}.get(int(record.cell[axis].split()[0]), 0)
        task_SQ = sums.setdefault(
            record.task, np.zeros((max(each.seed for each in records) + 1, len(record.true)), int)
        )
        task_SQ[record.seed] += sign * (np.array(record.predicted) == np.array(record.true))
    seeds = sorted({record.seed for record in records})
    difference = intervals.bootstrap([task_SQ[seeds] for task_SQ in sums.values()])
    return intervals.Difference(*(value / len(counts) for value in difference))


def skew_effect(
    analyses: Sequence[records_lib.Record], column: str, method: str, other: str = ""
) -> intervals.Difference:
    """Return how a method's accuracy changes from balanced rows to a column; with `other`, how much more than the other's does."""
    changes: dict[str, dict] = collections.defaultdict(lambda: collections.defaultdict(dict))
    for record in skewed(analyses):
        sign = {column: 1, "balanced": -1}.get(record.cell["column"], 0) * {method: 1, other: -1}.get(record.method, 0)
        if sign:
            right_Q = sign * (np.array(record.predicted) == np.array(record.true))
            by_seed = changes[record.task][record.cell["column"].startswith("test")]  # These have other test rows.
            by_seed[record.seed] = by_seed.get(record.seed, 0) + right_Q
    return intervals.bootstrap(
        [
            tuple(np.stack([part[seed] for seed in sorted(part)]) for part in parts.values())
            for parts in changes.values()
        ]
    )


def skewed(analyses: Sequence[records_lib.Record]) -> list[records_lib.Record]:
    """Return the records of prior reliance with the strongest skew of train rows, test rows or both, and without any."""
    own = of("prior_reliance", analyses)
    places = {min(record.cell["ratio"] for record in own): _SKEWED, 0.5: {"A": "balanced"}}
    return [
        dataclasses.replace(record, cell={"row": names.method(record.method), "column": column})
        for record in own
        if (column := places.get(record.cell["ratio"], {}).get(record.cell["setting"]))
    ]


def most_common(analyses: Sequence[records_lib.Record]) -> list[str]:
    """Return a row for the table of skewed classes: the accuracy of always predicting the most common class of the test rows."""
    shares = collections.defaultdict(list)
    for record in skewed(analyses):
        shares[record.cell["column"]].append(100 * max(collections.Counter(record.true).values()) / len(record.true))
    return [names.MOST_COMMON, *(f"{statistics.fmean(shares[column]):.1f}" for column in sorted(shares)), "–", "–"]


def printed_skewed() -> list[list[str]]:
    """Return the paper's rows for the table of skewed classes."""
    table = published.tables()["prior_reliance"]
    found = {(row["setting"], published.method_of(row["method"])): row["ratio"] for row in table["rows"]}
    settings = [("A", "0.5"), ("B", "0.125"), ("C", "0.125"), ("A", "0.125")]  # As the columns, in alphabetical order.
    return [
        [
            f"Paper, 1.5B: {names.method(method)}",
            *(f"{found[setting, method][ratio]:.1f}" for setting, ratio in settings),
            *(f"{found[setting, method]['0.125'] - found[setting, method]['0.5']:+.1f}" for setting in "BA"),
        ]
        for method in ("contextual_calibration", "icl", "knn")
    ]
