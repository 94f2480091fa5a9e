"""Tables of accuracies beside the paper's, and of paired differences between kNN Prompting and each other method."""

import dataclasses
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from knnprompt_jax.report import names, published, results, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.report.tables import Cell, Table

_TRUNCATED = 0.05  # The paper's limit on the share of truncated prompts, by which it chooses M_T.
SIGNIFICANT = (
    "p < 0.05 (t-test of the pairs over seeds; with one seed or equal differences, McNemar's exact test over rows); expect "
    "1 in 20 by chance"
)
_LEVEL = 0.05
_OWN_AVERAGE = "own_average"  # The column of averages over the tasks that were run, where the paper's are over others.


def build(name: str, ours: pd.DataFrame, axes: Sequence[str], caption: str, paper: pd.DataFrame) -> Table:
    """Return a row per place on the axes, a column per task and one for their average.

    Args:
      ours: the records, as `results.frame` returns them.
      paper: the paper's numbers on the same axes; places without a record are shown as well.
    """
    ours, axes = pd.concat([ours, results.with_best_template_per_seed(ours)]), axes_of(axes, ours, paper)
    ran = {model: set(runs.task) for (model,), runs in results.groups(ours, ["model"]).items()}
    tasks = names.ordered("task", {*ours.task, *paper.task} - {published.AVERAGE})
    tasks.sort(key=lambda task: task not in {*ours.task})  # Tasks with records come first.
    measured, printed = results.groups(ours, axes), results.groups(paper, axes)
    places = names.ordered_places(axes, measured | printed)
    if "model" in axes:  # Models with records come first.
        places.sort(key=lambda place: place[axes.index("model")] not in ran)
    cells: dict[tuple, Cell] = {}
    for place in places:
        runs, numbers = measured.get(place, ours[:0]), printed.get(place, paper[:0])
        same_model = len(runs) > 0 and set(runs.model) == set(numbers.model)
        scores = dict(zip(numbers.task, numbers.score, strict=True))
        cells |= {(*place, task): Cell(None, score) for task, score in scores.items()}
        for (task,), own in results.groups(runs, ["task"]).items():
            cells[*place, task] = Cell(results.accuracy(own), scores.get(task), same_model, cell_marks(own))
        averages = _averages(runs, numbers, tasks, ran, same_model)
        cells |= {(*place, column): cell for column, cell in averages.items()}
    notes = list(seeds(paper))
    if any(cell.ours and cell.paper and not cell.comparable for (*_, task), cell in cells.items() if task in tasks):
        notes.insert(
            0,
            f"The paper's numbers without a difference are {names.model(published.MODEL)}'s: a reference only, since the "
            "paper has no result with our model.",
        )
    if any(cell.paper for (*_, column), cell in cells.items() if column == _OWN_AVERAGE):
        notes.append("The paper's average of the tasks run is that of its printed numbers.")
    if any(cell.paper and cell.paper.note == published.TRUNCATED for cell in cells.values()):
        notes.append("A number of the paper with (†) is of truncated prompts.")
    return tables.build(name, caption, axes, _columns(tasks), cells, places, notes)


def _averages(
    runs: pd.DataFrame,
    numbers: pd.DataFrame,
    tasks: Sequence[str],
    ran: Mapping[str, Collection[str]],
    same_model: bool,
) -> dict[str, Cell]:
    """Return the averages at a place by their columns; both numbers of a cell are averages over the same tasks.

    The first column has the paper's average as printed, or the average over all tasks of the table. The second has the
    averages over the tasks that were run, if these are others; the paper's is computed from its rounded numbers. Ours is
    shown only if this place has all tasks that its model ran (`ran`).
    """
    own, found = set(runs.task), {}
    ours = results.average(runs) if len(runs) and all(own == ran[model] for model in runs.model) else None
    printed = numbers[numbers.task == published.AVERAGE]
    paper = printed.score.iloc[0] if len(printed) else None
    over = set(printed.tasks.iloc[0]) if len(printed) else {*tasks}
    if paper or (ours and own == over):
        marks = (f"the average over {len(over)} tasks",) if over != {*tasks} else ()
        found[published.AVERAGE] = Cell(ours if own == over else None, paper, same_model, marks, paper_digits=2)
    if ours and own != over and len(own) > 1:
        scores = list(numbers.score[numbers.task.isin(own)])
        mean = statistics.fmean(score.mean for score in scores) if len(scores) == len(own) else None
        theirs = None if mean is None else Score(mean, None, scores[0].count)
        found[_OWN_AVERAGE] = Cell(dataclasses.replace(ours, note=names.counted(len(own))), theirs, same_model)
    return found


def _columns(tasks: Sequence[str]) -> dict[str, str]:
    """Return the titles of a column per task and, for several tasks, of their averages."""
    averages = {published.AVERAGE: published.AVERAGE, _OWN_AVERAGE: "average of the tasks run"}
    return {task: names.task(task) for task in tasks} | (averages if len(tasks) > 1 else {})


def axes_of(axes: Sequence[str], ours: pd.DataFrame, paper: pd.DataFrame) -> list[str]:
    """Return the axes, preceded by model, regime, method and m where records that differ in these would share a row."""

    def is_mixed(axis: str, frame: pd.DataFrame) -> bool:
        columns = [column for column in (*axes, "task") if column != axis]
        return len(frame) > 0 and frame.groupby(columns, dropna=False)[axis].nunique().max() > 1

    several_models = len(ours) > 0 and len(results.by_model(ours)) > 1
    columns = list(dict.fromkeys([*axes, "m", "task"]))
    both = pd.concat([frame.reindex(columns=columns) for frame in (ours, paper) if len(frame)] or [ours])
    missing = {
        "model": several_models or is_mixed("model", paper),
        **{axis: is_mixed(axis, ours) for axis in ("regime", "method")},
        "m": is_mixed("m", both),
    }
    return [*(axis for axis, mixed in missing.items() if mixed and axis not in axes), *axes]


def cell_marks(records: pd.DataFrame) -> tuple[str, ...]:
    """Return the marks of truncated prompts and of results re-used from in-context learning."""
    truncated = records.truncated_prompts.sum() > _TRUNCATED * records.prompts.sum()
    reused = records.note.str.contains("re-?use").any()
    return (*((tables.TRUNCATED,) if truncated else ()), *((tables.REUSED,) if reused else ()))


def seeds(paper: pd.DataFrame) -> Iterator[str]:
    """Say how many seeds the paper's numbers rest on, and what that is inferred from."""
    counted = paper.assign(count=[score.count for score in paper.score])
    for (count, basis), group in results.groups(counted, ("count", "basis")).items():
        methods = " / ".join(map(names.method, group.method.unique()))
        yield f"The paper's numbers for {methods}: {count} seed{'' if count == 1 else 's'} ({basis})."


def paired(name: str, ours: pd.DataFrame, axes: Sequence[str]) -> Table:
    """Return kNN Prompting's accuracy minus each other method's on the same rows with the same seeds.

    A method that uses only demonstrations is compared at every m, and one that trains a model of its own with every model. The
    average is over `_averaged` tasks.
    """
    ours = pd.concat([runs.assign(model=model) for model, runs in results.by_model(ours).items()], ignore_index=True)
    places = [axis for axis in axes if axis not in ("method", "m")]
    is_knn, tasks = ours.method == "knn", names.ordered("task", ours.task)
    shared = dict.fromkeys([*places, "regime", "task", "seed"])
    pairs = ours[is_knn].merge(ours[~is_knn], on=[*shared], suffixes=("", "_other"))
    pairs = pairs[
        ((pairs.m_other == results.FILLS_CONTEXT) | (pairs.m_other == pairs.m)) & (pairs.true == pairs.true_other)
    ]
    pairs = pairs.assign(difference=pairs.accuracy - pairs.accuracy_other)
    cells = {}
    for place, rows in results.groups(pairs, [*places, "m", "method_other"]).items():
        ran = _averaged(ours[is_knn & (ours.model == rows.model.iloc[0])])
        by_seed = rows.pivot_table("difference", "seed", "task", aggfunc="last").reindex(columns=ran).dropna()
        differences = {task: (pair.difference, pair) for task, pair in rows.groupby("task")}
        differences |= {published.AVERAGE: (by_seed.mean(axis=1), None)} if len(by_seed) else {}
        for task, (values, pair) in differences.items():
            marks = (SIGNIFICANT,) if p_value(values, pair) < _LEVEL else ()
            note = names.counted(len(ran)) if pair is None and len(ran) < len(tasks) else ""
            cells[*place, task] = Cell(dataclasses.replace(Score.of(values), note=note), marks=marks)
    caption = (
        "kNN Prompting's accuracy minus each other method's in points, mean ± sample standard deviation over seeds."
    )
    table = tables.build(f"{name}_paired", caption, [*places, "m", "method"], _columns(tasks), cells)
    table = dataclasses.replace(table, headers=(*table.headers[:-1], "against"))
    return dataclasses.replace(table, findings=tuple(_findings(table, ours)))


def _findings(paired: Table, ours: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return a row per model at the largest m of all its tasks: what was run, and the methods that kNN Prompting is
    ahead of, behind, or neither.

    The numbers are mean differences over tasks in points. Tables with an axis of their own have no findings.
    """
    has_average = published.AVERAGE in paired.columns or ours[ours.method == "knn"].task.nunique() == 1
    if paired.headers not in (("Model", "m", "against"), ("m", "against")) or not has_average:
        return []
    last: dict[str, tuple[str, tuple[list[str], ...]]] = {}
    for row in paired.rows:
        (*model, m, method), score = row.headers, row.cells[-1].ours
        if score:
            title = model[0] if model else names.model(ours.model.iloc[0])
            if title not in last or last[title][0] != m:
                last[title] = m, ([], [], [])
            kind = int(score.mean < 0) if SIGNIFICANT in row.cells[-1].marks else 2
            last[title][1][kind].append(f"{method} {tables.signed(score.mean)}")
    rows = []
    for title, (m, kinds) in last.items():
        runs = ours[(ours.method == "knn") & (ours.model.map(names.model) == title)]
        runs = runs[[names.text("m", each) == m for each in runs.m]]
        ran = _averaged(runs)
        tasks = names.task(ran[0]) if len(ran) == 1 else names.counted(len(ran))
        demonstrations = f"{names.span(runs.demo_shots)} demonstration{'s' * (max(runs.demo_shots) != 1)} per class"
        texts = [title, f"m = {m}", demonstrations, *names.directions(runs.record), tasks]
        rows.append(("; ".join(texts), *("; ".join(methods) or "–" for methods in kinds)))
    return rows


def _averaged(runs: pd.DataFrame) -> list[str]:
    """Return the tasks with several seeds, or all: a task with one seed would leave a single seed to compare."""
    num_seeds = runs.groupby("task").seed.nunique()
    return list(num_seeds[num_seeds > 1].index) or list(num_seeds.index)


def p_value(differences: Sequence[float] | pd.Series, pairs: pd.DataFrame | None = None) -> float:
    """Return the p-value of equal accuracies: a t-test over seeds.

    With one seed or equal differences, it is McNemar's exact test over the rows of `pairs`, or 1 without pairs.
    """
    if np.ptp(np.asarray(differences)) >= 1e-9:
        return float(stats.ttest_1samp(differences, 0.0).pvalue)
    if pairs is None:
        return 1.0
    true, *predicted = (np.concatenate(list(pairs[name])) for name in ("true", "predicted", "predicted_other"))
    ours, theirs = (predictions == true for predictions in predicted)
    better, worse = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    return float(stats.binomtest(better, better + worse).pvalue) if better + worse else 1.0
