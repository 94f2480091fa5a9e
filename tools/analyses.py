"""Analyses along other axes than m, the paper's own numbers, and comparisons of SmolLM2 with itself."""

import collections
import dataclasses
import statistics
from collections.abc import Sequence

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


def on_tasks(scale: scales.Scale, method: str, m: int) -> str:
    """List the differences between SmolLM2's kNN Prompting and another method on SST2 and MPQA, over the seeds that both have."""
    texts = []
    for task in ("sst2", "mpqa"):
        ours, theirs = (("smollm2", name, m) for name in ("knn", method))
        seeds = sorted({*scale.seeds(*ours, task)} & {*scale.seeds(*theirs, task)})
        texts.append(f"{scale.difference(ours, theirs, {task: seeds})} on {names.task(task)}")
    return " and ".join(texts)


def printed(tasks: Sequence[str], ours: tuple[str, int], theirs: tuple[str, int], sizes: bool = False) -> str:
    """List the paper's differences between two (method, m) on these tasks, from its smallest model on; M_T counts as 0."""
    found = published.of("data_scaling")
    differences = []
    for size, model in published.SIZES.items():
        means = [
            statistics.fmean(each.mean for each in rows.score[rows.task.isin(tasks)])
            for rows in (
                found[(found.model == model) & (found.method == method) & (found.m == m)]
                for method, m in (ours, theirs)
            )
        ]
        differences.append(f"{means[0] - means[1]:+.1f}{f' ({size})' * sizes}")
    return ", ".join(differences).replace("-", "−")


def printed_leads(table: str, tasks: Sequence[str], theirs: str, shots: Sequence[int]) -> str:
    """List the leads of kNN Prompting over a method in a table of the paper with GPT-2 XL, averaged over tasks, for each m."""
    found = published.of(table)
    found = found[found.task.isin(tasks) & (found.model == published.MODEL)]
    leads = []
    for m in shots:
        ours, other = (
            statistics.fmean(score.mean for score in found.score[(found.method == method) & (found.m == m)])
            for method in ("knn", theirs)
        )
        leads.append(f"{ours - other:+.1f}")
    return ", ".join(leads).replace("-", "−")


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
    """Return the difference between four and one of a row's demonstrations, or a column's anchors, averaged over the other axis."""
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


def skewed_train(analyses: Sequence[records_lib.Record], method: str, other: str = "") -> intervals.Difference:
    """Return a method's accuracy with skewed minus with balanced train rows, on the same test rows; or this minus another's."""
    changes: dict[str, dict[int, np.ndarray]] = collections.defaultdict(dict)
    for record in skewed(analyses):
        sign = {"train skewed": 1, "balanced": -1}.get(record.cell["column"], 0)
        sign *= {method: 1, other: -1}.get(record.method, 0)
        if sign:
            right_Q = sign * (np.array(record.predicted) == np.array(record.true))
            changes[record.task][record.seed] = changes[record.task].get(record.seed, 0) + right_Q
    return intervals.bootstrap([np.stack([by_seed[seed] for seed in sorted(by_seed)]) for by_seed in changes.values()])


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
    return [names.MOST_COMMON, *(f"{statistics.fmean(shares[column]):.1f}" for column in sorted(shares))]


def printed_skewed() -> list[list[str]]:
    """Return the paper's rows for the table of skewed classes."""
    table = published.tables()["prior_reliance"]
    found = {(row["setting"], published.method_of(row["method"])): row["ratio"] for row in table["rows"]}
    settings = [("A", "0.5"), ("B", "0.125"), ("C", "0.125"), ("A", "0.125")]  # As the columns, in alphabetical order.
    return [
        [
            f"Paper, GPT-2 XL: {names.method(method)}",
            *(f"{found[setting, method][ratio]:.1f}" for setting, ratio in settings),
        ]
        for method in ("contextual_calibration", "icl", "knn")
    ]
