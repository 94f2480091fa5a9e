"""Tables of accuracies beside the paper's, and of paired differences between kNN Prompting and each other method."""

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from knnprompt_jax.report import names, published, results, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.report.tables import Table

_TRUNCATED = 0.05  # The paper's limit on the share of truncated prompts, by which it chooses M_T.
SIGNIFICANT = (
    "p < 0.05 (t-test of the pairs over seeds; with one seed McNemar's exact test over rows); expect 1 in 20 by chance"
)
_LEVEL = 0.05
OVER_THESE = "the paper's average is over these tasks, from its rounded numbers; it prints the average of more tasks"
Marks = Callable[[pd.DataFrame], tuple[str, ...]]


def build(
    name: str,
    ours: pd.DataFrame,
    axes: Sequence[str],
    caption: str,
    paper: pd.DataFrame,
    marks: Marks = lambda records: (),
) -> Table:
    """Return a row per place on the axes, a column per task and one for their average.

    Args:
      ours: the records, as `results.frame` returns them.
      paper: the paper's numbers on the same axes; places without a record are shown as well.
      marks: returns further marks of a cell from its records.
    """
    ours, axes = pd.concat([ours, results.with_best_template_per_seed(ours)]), axes_of(axes, ours, paper)
    ran, models = set(ours.task), set(ours.model)
    tasks = names.ordered("task", {*ran, *paper.task} - {published.AVERAGE})
    measured, printed = results.groups(ours, axes), results.groups(paper, axes)
    places = names.ordered_places(axes, measured | printed)
    if "model" in axes:  # Models with records come first.
        places.sort(key=lambda place: place[axes.index("model")] not in models)
    whole = {(*place, published.AVERAGE): runs for place, runs in measured.items() if set(runs.task) == ran}
    runs_of, numbers_of = results.groups(ours, [*axes, "task"]), results.groups(paper, [*axes, "task"])
    scores = {key: results.accuracy(runs) for key, runs in runs_of.items()}
    scores |= {key: results.average(runs) for key, runs in whole.items()}

    paper_scores = {key: numbers.score.iloc[0] for key, numbers in numbers_of.items()}
    averaged = {}
    for (*place, task), numbers in numbers_of.items():
        means = [paper_scores[*place, each].mean for each in tasks if (*place, each) in paper_scores]
        if task == published.AVERAGE and set(numbers.tasks.iloc[0]) != {*tasks} and len(means) == len(tasks):
            averaged[*place, task] = Score(statistics.fmean(means), None, numbers.score.iloc[0].count)
    paper_scores |= averaged

    def attributes(key: tuple) -> dict[str, Any]:
        runs, numbers = (runs_of | whole).get(key, ours[:0]), numbers_of.get(key, paper[:0])
        same_model = len(numbers) > 0 and bool((runs.model == numbers.model.iloc[0]).all())
        if key[-1] != published.AVERAGE:
            return {"comparable": same_model, "marks": (*cell_marks(runs), *marks(runs)) if len(runs) else ()}
        over, own = set(numbers.tasks.iloc[0]) if len(numbers) else {*tasks}, []
        if len(runs) and len(ran) < len(tasks):
            own.append(f"the average over the {len(ran)} of {len(tasks)} tasks that were run")
        if key in averaged:
            over = {*tasks}
            own.append(OVER_THESE)
        elif over != {*tasks}:
            own.append(f"the paper's average is over {len(over)} tasks")
        return {"comparable": same_model and over == ran, "marks": tuple(own), "paper_digits": 2}

    table = tables.build(name, caption, axes, _columns(tasks), scores, paper_scores, places, attributes)
    notes = list(seeds(name, paper))
    if any(cell.ours and cell.paper and not cell.comparable for row in table.rows for cell in row.cells[: len(tasks)]):
        notes.insert(
            0,
            f"The paper's numbers without a difference are {names.model(published.MODEL)}'s: a reference only, since the "
            "paper has no result with our model.",
        )
    if any(cell.paper and cell.paper.note == published.TRUNCATED for cell in table.cells):
        notes.append("(†) behind a number of the paper: it truncated prompts.")
    return dataclasses.replace(table, notes=tuple(notes))


def _columns(tasks: Sequence[str]) -> dict[str, str]:
    """Return the titles of a column per task and, for several tasks, their average."""
    return {task: names.task(task) for task in (*tasks, *((published.AVERAGE,) if len(tasks) > 1 else ()))}


def axes_of(axes: Sequence[str], ours: pd.DataFrame, paper: pd.DataFrame) -> list[str]:
    """Return the axes, preceded by model and m if different models or numbers of shots would share a row."""

    def is_mixed(axis: str, frame: pd.DataFrame) -> bool:
        others = [other for other in (*axes, "task") if other != axis]
        return len(frame) > 0 and frame.groupby(others, dropna=False)[axis].nunique().max() > 1

    several_models = len(ours) > 0 and len(results.by_model(ours)) > 1
    columns = list(dict.fromkeys([*axes, "m", "task"]))
    both = pd.concat([each.reindex(columns=columns) for each in (ours, paper) if len(each)] or [ours])
    missing = {"model": several_models or is_mixed("model", paper), "m": is_mixed("m", both)}
    return [*(axis for axis, mixed in missing.items() if mixed and axis not in axes), *axes]


def cell_marks(records: pd.DataFrame) -> tuple[str, ...]:
    """Return the marks of truncated prompts and of results re-used from in-context learning."""
    truncated = records.truncated_prompts.sum() > _TRUNCATED * records.prompts.sum()
    reused = records.note.str.contains("re-?use").any()
    return (*((tables.TRUNCATED,) if truncated else ()), *((tables.REUSED,) if reused else ()))


def seeds(name: str, paper: pd.DataFrame) -> Iterator[str]:
    """Say how many seeds the paper's numbers rest on, what that is inferred from, and which other table they come from."""
    counted = paper.assign(count=[score.count for score in paper.score])
    for (table, count, basis), group in results.groups(counted, ("table", "count", "basis")).items():
        methods = ", ".join(map(names.method, group.method.unique()))
        text = f"The paper's {methods}: {count} seed{'' if count == 1 else 's'} ({basis})"
        yield text + ("." if table == name else f", from its table of {published.TITLES[table]}.")


def paired(name: str, ours: pd.DataFrame, axes: Sequence[str], marks: Marks = lambda records: ()) -> Table | None:
    """Return kNN Prompting's accuracy minus each other method's on the same rows with the same seeds; None without pairs.

    A method that uses only demonstrations is compared at every m.
    """
    if ours.empty:
        return None
    places = [axis for axis in axes if axis not in ("method", "m")]
    is_knn, tasks = ours.method == "knn", names.ordered("task", ours.task)
    pairs = ours[is_knn].merge(ours[~is_knn], on=[*places, "task", "seed"], suffixes=("", "_other"))
    pairs = pairs[
        ((pairs.m_other == results.FILLS_CONTEXT) | (pairs.m_other == pairs.m)) & (pairs.true == pairs.true_other)
    ]
    pairs = pairs.assign(difference=pairs.accuracy - pairs.accuracy_other)
    axes = [*places, "m", "method"]
    scores, marked = {}, {}
    for place, rows in results.groups(pairs, [*places, "m", "method_other"]).items():
        by_seed = rows.pivot_table("difference", "seed", "task", aggfunc="last").reindex(columns=tasks).dropna()
        differences = {task: (pair.difference, pair) for task, pair in rows.groupby("task")}
        if len(tasks) > 1 and len(by_seed):
            differences[published.AVERAGE] = by_seed.mean(axis=1), None
        for task, (values, pair) in differences.items():
            both = pd.DataFrame({"record": [] if pair is None else [*pair.record, *pair.record_other]})
            significant = [SIGNIFICANT] if p_value(values, pair) < _LEVEL else []
            scores[*place, task], marked[*place, task] = Score.of(values), (*significant, *marks(both))
    if not scores:
        return None
    caption = (
        "kNN Prompting's accuracy minus each other method's in points, mean ± sample standard deviation over seeds."
    )
    table = tables.build(
        f"{name}_paired", caption, axes, _columns(tasks), scores, attributes=lambda key: {"marks": marked.get(key, ())}
    )
    return dataclasses.replace(table, headers=(*table.headers[:-1], "against"))


def p_value(differences: Sequence[float] | pd.Series, pairs: pd.DataFrame | None = None) -> float:
    """Return the p-value of equal accuracies: a t-test over seeds or, with one seed, McNemar's exact test over its rows.

    Returns 1 if neither test applies.
    """
    if len(differences) > 1:
        equal = np.ptp(np.asarray(differences)) < 1e-9
        return 1.0 if equal else float(stats.ttest_1samp(differences, 0.0).pvalue)
    if pairs is None:
        return 1.0
    pair = pairs.iloc[0]
    ours, theirs = (np.array(predicted) == np.array(pair.true) for predicted in (pair.predicted, pair.predicted_other))
    better, worse = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    return float(stats.binomtest(better, better + worse).pvalue) if better + worse else 1.0
