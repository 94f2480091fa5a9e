"""Reliance on prior knowledge (table): the positive class is rare in the train rows (A), the test rows (B) or both (C).

λ is the positive class's share of all train rows, demonstrations included; of the test rows, rows of either class are left out until
the class has its share. Rows without a skew have λ = 0.5: A's test rows and B's train rows. The paper does not say m; 16 is ours.
"""

import dataclasses
import itertools
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from knnprompt_jax.paper import cells, experiment
from knnprompt_jax.report import accuracies, names, published, results, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.runs import inputs
from knnprompt_jax.settings import grids

_NAME = "prior_reliance"
_BALANCED = 0.5
_IN_TRAIN, _IN_TEST = ("A", "C"), ("B", "C")
_SETTINGS = ("A", "B", "C")
_SUMMARIES = ("average", "drop")
_METHODS = ("icl", "contextual_calibration", "contextual_calibration_trainset", "noisy_channel", "knn")


def _cells(
    settings: grids.PriorSettings, names: Sequence[str], rows: inputs.Rows, most: int
) -> Iterator[cells.GridCell]:
    for setting, share, cell in itertools.product(
        settings.prior_settings, settings.shares, cells.regimes(settings, names, rows, most)
    ):
        yield dataclasses.replace(
            cell,
            draw=dataclasses.replace(cell.draw, share=share if setting in _IN_TRAIN else _BALANCED),
            axes=(*cell.axes, ("setting", setting), ("ratio", share)),
            test_share=share if setting in _IN_TEST else _BALANCED,
        )


def _paper() -> pd.DataFrame:
    """Return the paper's numbers by setting, method and ratio or summary, all of them averages over tasks."""
    table, numbers = published.tables()[_NAME], []
    shared = {"table": _NAME, "model": table["model"], "task": published.AVERAGE}
    tasks = tuple(task.lower() for task in table["tasks"])
    for row in table["rows"]:
        count, basis = published.seeds(_NAME, row["method"])
        place = {**shared, "setting": row["setting"], "method": published.method_of(row["method"])}
        place |= {"basis": basis, "tasks": tasks}
        means: dict[Any, float] = {float(ratio): mean for ratio, mean in row["ratio"].items()}
        means |= {"average": row["avg"], "drop": row["max_drop"]}
        numbers += [{**place, "ratio": ratio, "score": Score(mean, None, count)} for ratio, mean in means.items()]
    return pd.DataFrame(numbers)


def _draw(data: experiment.Data) -> experiment.Drawn:
    """Return a row per setting and method, averaged over tasks; the paper prints no spread, so no difference has a verdict."""
    paper = _paper()
    ours = pd.concat([data.ours, results.with_best_template_per_seed(data.ours)])
    axes = accuracies.axes_of(("setting", "method"), ours, published.empty())
    ratios = names.ordered("ratio", {*ours.get("ratio", ()), *paper.ratio} - {*_SUMMARIES})
    runs_of = results.groups(ours, [*axes, "ratio"])
    scores = {key: results.average(runs) for key, runs in runs_of.items()}
    for place in results.groups(ours, axes):
        means = {key[-1]: score.mean for key, score in scores.items() if key[:-1] == place}
        scores[*place, "average"] = Score(statistics.fmean(means.values()))
        if len(means) > 1 and (balanced := means.pop(_BALANCED, None)) is not None:
            scores[*place, "drop"] = Score(min(means.values()) - balanced)
    printed = {key: numbers.score.iloc[0] for key, numbers in results.groups(paper, [*axes, "ratio"]).items()}
    same_tasks = set(ours.task) == set(paper.tasks.iloc[0])
    models = {place: set(runs.model) for place, runs in results.groups(ours, axes).items()}

    def attributes(key: tuple) -> dict[str, Any]:
        runs = runs_of.get(key, ours[:0])
        return {
            "comparable": same_tasks and models.get(key[:-1]) == {published.MODEL},
            "marks": (*accuracies.cell_marks(runs), *data.marks(runs)) if len(runs) else (),
            "paper_digits": 2 if key[-1] in _SUMMARIES else None,
        }

    columns: dict[Any, str] = {ratio: f"λ = {ratio:g}" for ratio in ratios} | {name: name for name in _SUMMARIES}
    caption = (
        "Accuracy in % averaged over tasks by the share λ of the positive class. A: train skewed; B: test skewed; C: both. "
        "Drop: the lowest of the skewed minus the balanced; the paper's averages and drops are of its unrounded numbers."
    )
    note = f"The paper's numbers are {names.model(published.MODEL)}'s over five tasks."
    table = tables.build(_NAME, caption, axes, columns, scores, printed, attributes=attributes)
    return [dataclasses.replace(table, notes=(note, *accuracies.seeds(_NAME, paper)))], []


EXPERIMENTS = (
    experiment.Experiment(
        _NAME,
        "Reliance on prior knowledge",
        f"Classes out of balance in the train rows, the test rows or both. {experiment.OTHER_ROWS}",
        _draw,
        cells=_cells,
        matches=None,
    ),
)
