"""Grids over an axis of their own: reliance on prior knowledge, splits of the train rows, k, and imbalance."""

import collections
import dataclasses
import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from knnprompt_jax.methods import all_methods, knn, method
from knnprompt_jax.paper import cells, experiment
from knnprompt_jax.report import accuracies, figures, names, published, results, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.settings import grids
from knnprompt_jax.study import job_inputs as inputs

_PRIOR = "prior_reliance"
_BALANCED = 0.5
_SKEWED_TRAIN = ("A", "C")
_SKEWED_TEST = ("B", "C")
_SUMMARIES = ("average", "drop")


def _prior_cells(settings: grids.PriorSettings, rows: inputs.Rows, max_demo_shots: int) -> Iterator[cells.GridCell]:
    """Yield each cell with the positive class rare in the train rows (A), the test rows (B) or both (C), at each λ.

    λ is the positive class's share of all train rows, demonstrations included, or of the test rows. The other rows have
    λ = 0.5: the test rows in A, the train rows in B.
    """
    usual = list(cells.regimes(settings, rows, max_demo_shots))
    for setting in settings.prior_settings:
        for share in settings.shares:
            train_share = share if setting in _SKEWED_TRAIN else _BALANCED
            test_share = share if setting in _SKEWED_TEST else _BALANCED
            for cell in usual:
                yield dataclasses.replace(
                    cell,
                    draw=dataclasses.replace(cell.draw, share=train_share),
                    axes=(*cell.axes, ("setting", setting), ("ratio", share)),
                    test_share=test_share,
                )


def _paper_priors() -> pd.DataFrame:
    """Return the paper's numbers by setting, method and ratio or summary, all of them averages over tasks."""
    table = published.tables()[_PRIOR]
    numbers = []
    for row in table["rows"]:
        count, basis = published.seeds(_PRIOR, row["method"])
        means: dict[Any, float] = {float(ratio): mean for ratio, mean in row["ratio"].items()}
        means |= {"average": row["avg"], "drop": row["max_drop"]}
        for ratio, mean in means.items():
            numbers.append(
                {
                    "model": table["model"],
                    "task": published.AVERAGE,
                    "tasks": _list(map(str.lower, table["tasks"])),
                    "setting": row["setting"],
                    "method": published.method_of(row["method"]),
                    "basis": basis,
                    "ratio": ratio,
                    "score": Score(mean, None, count),
                }
            )
    return pd.DataFrame(numbers)


def _list(tasks: Iterable[str]) -> str:
    return ", ".join(map(names.task, names.ordered("task", tasks)))


def _draw_priors(data: experiment.Data) -> experiment.Drawn:
    """Return a row per setting and method, averaged over tasks.

    The paper prints no spread, so no difference has a verdict. Averages over other tasks than the paper's have rows of
    their own. There is no mean at a λ that a task lacks.
    """
    paper = _paper_priors()
    ours = pd.concat([data.ours, results.with_best_template_per_seed(data.ours)])
    ours = ours.assign(tasks=_list(ours.task))
    own_tasks = ["tasks"] if len(ours) and {*ours.tasks} != {*paper.tasks} else []
    axes = accuracies.axes_of((*own_tasks, "setting", "method"), ours, published.of(""))
    paper = experiment.with_columns(paper, axes)
    columns = [*axes, "ratio"]
    groups = results.groups(ours, columns)
    complete = {key: runs for key, runs in groups.items() if {*runs.task} == {*ours.task}}
    scores = _with_summaries({key: results.average(runs) for key, runs in complete.items()})
    printed = {key: numbers.score.iloc[0] for key, numbers in results.groups(paper, columns).items()}
    comparable_ratios = {*paper.ratio} - {*_SUMMARIES}
    for row in results.groups(ours, axes):
        found = {key[-1] for key in scores if key[:-1] == row} - {*_SUMMARIES}
        if found != comparable_ratios:  # The paper's summaries are of other numbers.
            for summary in _SUMMARIES:
                printed.pop((*row, summary), None)
    is_comparable = "model" in axes or {*ours.model} == {published.MODEL}
    cells_of = {
        key: tables.Cell(
            scores.get(key),
            printed.get(key),
            is_comparable,
            accuracies.cell_marks(groups[key]) if key in groups else (),
            paper_digits=2 if key[-1] in _SUMMARIES else None,
        )
        for key in {**scores, **printed}
    }
    ratios = names.ordered("ratio", {*ours.get("ratio", ()), *comparable_ratios})
    titles: dict[Any, str] = {ratio: f"λ = {ratio:g}" for ratio in ratios} | {name: name for name in _SUMMARIES}
    caption = (
        "Accuracy in % averaged over tasks by the share λ of the positive class. A: train skewed; B: test skewed; C: both. "
        "Drop: the lowest skewed accuracy minus the balanced one; the paper's averages and drops are of its unrounded "
        "numbers."
    )
    note = f"The paper's numbers are {names.model(published.MODEL)}'s over five tasks."
    return [tables.build(_PRIOR, caption, axes, titles, cells_of, notes=[note, *accuracies.seed_notes(paper)])], []


def _with_summaries(scores: Mapping[tuple, Score]) -> dict[tuple, Score]:
    """Add the average over ratios and the drop of each row to scores by (*row, ratio)."""
    means: dict[tuple, dict[float, float]] = collections.defaultdict(dict)
    for key, score in scores.items():
        means[key[:-1]][key[-1]] = score.mean
    found = dict(scores)
    for row, by_ratio in means.items():
        found[*row, "average"] = Score(statistics.fmean(by_ratio.values()))
        skewed = [mean for ratio, mean in by_ratio.items() if ratio != _BALANCED]
        if skewed and _BALANCED in by_ratio:
            found[*row, "drop"] = Score(min(skewed) - by_ratio[_BALANCED])
    return found


def _splits(settings: grids.SplitSettings, rows: inputs.Rows, max_demo_shots: int) -> Iterator[cells.GridCell]:
    """Yield every |D| and |A| whose sum the context holds."""
    del rows
    for name, seed, demo_shots, anchor_shots in itertools.product(
        settings.methods, settings.seeds, settings.demo_shots, settings.anchor_shots
    ):
        if demo_shots + anchor_shots <= max_demo_shots:
            draw = cells.Draw(seed, demo_shots + anchor_shots, demo_shots)
            yield cells.GridCell(name, draw, (("anchor_shots", anchor_shots),))


def _predict_with_any_k(method_inputs: method.Inputs, settings: Any) -> method.Prediction:
    """Run kNN Prompting without the published limit of k to the number of anchors per class."""
    return knn.vote(method_inputs, settings, settings.k)


# Another name, because its records have other keys.
_ANY_K = dataclasses.replace(all_methods.get("knn"), code_suffix=" with any k", predict=_predict_with_any_k)


def _every_k(settings: grids.GridSettings, rows: inputs.Rows, max_demo_shots: int) -> Iterator[cells.GridCell]:
    """Yield kNN Prompting with every k up to the number of anchors, and other methods unchanged."""
    for cell in cells.regimes(settings, rows, max_demo_shots):
        if cell.method != "knn":
            yield cell
            continue
        num_anchors = len(cells.split(rows, cell.draw).anchors)
        for k in range(1, num_anchors + 1):
            yield dataclasses.replace(cell, axes=(*cell.axes, ("k", k)), replacement=_ANY_K)


def _skewed(settings: grids.ImbalanceSettings, rows: inputs.Rows, max_demo_shots: int) -> Iterator[cells.GridCell]:
    """Yield each cell at each share of the rare class in all train rows, demonstrations included."""
    for share in settings.shares:
        for cell in cells.regimes(settings, rows, max_demo_shots):
            draw = dataclasses.replace(cell.draw, share=share)
            yield dataclasses.replace(cell, draw=draw, axes=(*cell.axes, ("ratio", share)))


EXPERIMENTS = (
    experiment.Experiment(
        _PRIOR,
        "Reliance on prior knowledge",
        "Classes out of balance in the train rows, the test rows or both.",
        _draw_priors,
        grids.PriorSettings,
        _prior_cells,
    ),
    experiment.Experiment(
        "split_strategy",
        "Demonstrations or anchors",
        "Train rows per class split between demonstrations (D) and anchors (A).",
        experiment.drawn(
            ("demo_shots", "anchor_shots"),
            figures.heatmaps,
            "Mean accuracy in % for each split of the train rows; the darker, the better within its panel.",
        ),
        grids.SplitSettings,
        _splits,
    ),
    experiment.Experiment(
        "choice_of_k",
        "Choice of k",
        "The number of neighbours that vote.",
        experiment.drawn(
            ("method", "k"),
            figures.curves,
            "Accuracy against the number of neighbours, for each m.",
            plot=figures.Plot("k", "k, nearest anchors", line="m", log=False),
        ),
        cells=_every_k,
    ),
    experiment.Experiment(
        "imbalance",
        "Imbalance",
        "One class with a shrinking share of the train rows; the test rows are unchanged.",
        experiment.drawn(
            ("regime", "method", "ratio"),
            figures.curves,
            "Accuracy on the balanced test rows against the skew of the train rows, with all anchors and with one mean per "
            "class.",
            f"{experiment.SPREAD} λ: one class's share of the train rows.",
            plot=figures.Plot("ratio", "λ, share of one class in train", panel=("task", "regime"), average=False),
        ),
        grids.ImbalanceSettings,
        _skewed,
    ),
)
