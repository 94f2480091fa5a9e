"""Data scaling (table and figure with the power law, and the paper's first two figures), and robustness: m = 32 … 1024.

The data utility is a power law ε(m) = α m^β of the error, fitted as a line in logarithms (Section 4.1).
The first figure and the pilot figure of in-context learning against shots also need 1 … 32 shots in the few-shot regime.
Robustness is the spread over ten seeds.
"""

import dataclasses
import math
import statistics
from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy import stats

from knnprompt_jax.paper import experiment
from knnprompt_jax.report import accuracies, drawing, figures, names, published, results, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.settings import grids

_SMALLEST = "gpt2-large"  # The text gives spreads of this model with 32 shots: 3.83 against 9.14.
_AXES = ("model", "m", "method")
_TITLES = {"alpha": "α", "beta": "β", "r_squared": "R²"}
_FEW_SHOT = f"{experiment.SPREAD} Few-shot scenario: |D| = 1, or m for in-context learning."


def _draw(data: experiment.Data) -> experiment.Drawn:
    full_runs, few_runs = (data.ours[data.ours.regime == regime] for regime in grids.REGIMES)
    full = dataclasses.replace(data, ours=full_runs)
    few_paper = published.of("few_shot")
    few = experiment.Data("data_scaling_few", few_runs, few_paper[few_paper.method.isin([*few_runs.method])])
    built = list(experiment.tabulated(*_AXES, caption=f"{experiment.SPREAD} |D| = M_T.")(full)[0])
    built += experiment.tabulated(*_AXES, caption=_FEW_SHOT)(few)[0]
    knn, printed = (frame[frame.method == "knn"] for frame in (full.ours, full.paper))
    built.append(power_law_table(knn, printed))
    drawings = [_first(full, few)] if data.ours.method.isin(["icl", "knn"]).any() else []
    pilot, printed_pilot = (frame[frame.method == "icl"] for frame in (few.ours, few.paper))
    if len(pilot):
        caption = "In-context learning against the shots in its prompt; † marks truncated prompts."
        plot = figures.Plot("m", "shots in the prompt, per class")
        drawings.append(figures.curves("pilot", caption, pilot, printed_pilot, plot))
    if len(knn):
        plot = figures.Plot("m", figures.SHOTS, line="model")
        drawings.append(figures.curves("data_scaling", "kNN Prompting against m; |D| = M_T.", knn, printed, plot))
        caption = "Power law of data scaling: errors, and the fits of ε(m) = α m^β."
        plot = dataclasses.replace(plot, law=fit_power_law)
        drawings.append(figures.curves("power_law", caption, knn, printed, plot))
    return built, drawings


def _first(full: experiment.Data, few: experiment.Data) -> drawing.Figure:
    """Draw the paper's first figure for one model: in-context learning ends with the context, kNN Prompting continues."""
    ours, paper = (
        joined(*frames).assign(regime=results.FULL) for frames in ((few.ours, full.ours), (few.paper, full.paper))
    )
    models = results.by_model(ours)
    model = published.MODEL if published.MODEL in models else next(iter(models))
    paper = paper[paper.model == (model if model in published.SIZES.values() else published.MODEL)]
    caption = f"In-context learning and kNN Prompting with {names.model(model)}. "
    caption += (
        "The curve of in-context learning ends where the context is full; kNN Prompting has |D| = 1 while m is small, then M_T."
        if len(few.ours)
        else "|D| = M_T."
    )
    plot = figures.Plot("m", figures.SHOTS)
    return figures.curves("first", caption, models[model], paper, plot)


def joined(few: pd.DataFrame, full: pd.DataFrame) -> pd.DataFrame:
    """Return both methods' few-shot runs, then kNN Prompting's full runs at the places that lack one.

    Without few-shot runs, return both methods' full runs.
    """
    place = ["model", "task", "method", "m"]
    known = set(few[place].itertuples(index=False, name=None))
    is_new = [cell not in known for cell in full[place].itertuples(index=False, name=None)]
    rest = full.loc[is_new]
    rest = rest[rest.method.isin(["knn"] if len(few) else ["icl", "knn"])]
    return pd.concat([few[few.method.isin(["icl", "knn"])], rest])


def _draw_spreads(data: experiment.Data) -> experiment.Drawn:
    caption = "Spread over seeds. Box: quartiles and median; whiskers: at most 1.5 times the box's height; circles: seeds beyond."
    drawn, drawings = experiment.drawn(("m", "method"), figures.boxes, caption)(data)
    return [*drawn, _spread_table(data.ours)], drawings


def _spread_table(ours: pd.DataFrame) -> tables.Table:
    """Return the standard deviation over seeds, averaged over tasks, for each model, m and method."""
    paper = published.of("data_scaling")
    paper = paper[paper.model.isin({_SMALLEST, published.MODEL, *ours.model}) & (paper.task != published.AVERAGE)]
    axes = accuracies.axes_of(_AXES, ours, paper)
    runs_of, numbers_of = results.groups(ours, axes), results.groups(paper, axes)
    cells, num_tasks = {}, ours.task.nunique()
    for place in runs_of | numbers_of:
        runs, numbers = runs_of.get(place, ours[:0]), numbers_of.get(place, paper[:0])
        if len(runs):
            numbers = numbers[numbers.task.isin(runs.task)]
        stds, printed = runs.groupby("task").accuracy.std(), [score.std for score in numbers.score]
        spread = Score(float(stds.mean())) if len(stds) and stds.notna().all() else None
        fewer = (f"over {len(stds)} of {num_tasks} tasks",) if spread and len(stds) < num_tasks else ()
        same_tasks = len(printed) == len(stds)
        mean = Score(statistics.fmean(printed)) if printed and (same_tasks or runs.empty) else None
        cells[*place, "spread"] = tables.Cell(spread, mean, same_tasks, fewer, digits=2)
    caption = (
        "Sample standard deviation over seeds in points, averaged over tasks; the paper's from the rounded numbers of its table of "
        "data scaling (its text: 3.83 for kNN Prompting against 9.14, with 0.8B and m = 32)."
    )
    return tables.build("robustness_spread", caption, axes, {"spread": "spread"}, cells)


@dataclasses.dataclass(frozen=True)
class PowerLaw:
    """`alpha` and `beta` with their standard errors, and the share of the variance of log ε that the line explains."""

    alpha: Score
    beta: Score
    r_squared: Score

    def error(self, m: np.ndarray) -> np.ndarray:
        """Return the expected error in % at each m."""
        return 100 * self.alpha.mean * m**self.beta.mean


def fit_power_law(accuracies: Mapping[float, float]) -> PowerLaw | None:
    """Return the law through accuracies in % by m; None if fewer than three points have an error above 0."""
    points = [(m, 1 - accuracy / 100) for m, accuracy in accuracies.items() if accuracy < 100]
    if len(points) < 3:
        return None
    line = stats.linregress(*np.log(np.array(points)).T)
    alpha = float(np.exp(line.intercept))
    beta = Score(float(line.slope), float(line.stderr))
    return PowerLaw(Score(alpha, alpha * float(line.intercept_stderr)), beta, Score(float(line.rvalue) ** 2))


def power_law_table(ours: pd.DataFrame, paper: pd.DataFrame) -> tables.Table:
    """Return α and β for every model and task, beside those of the same fit through the paper's numbers at the same m.

    Averages are fitted at the m that all tasks of the model have.
    A model that only the paper ran has a row for its average.
    """
    axes = ("model", "task")
    cells, places = {}, {(model, published.AVERAGE) for model in (*ours.model, *paper.model)}
    for model, task in places | set(results.groups(ours, axes)):
        runs = ours[ours.model == model]
        num_tasks = runs.groupby("shots").task.transform("nunique")
        chosen = runs[num_tasks == runs.task.nunique()] if task == published.AVERAGE else runs[runs.task == task]
        measured = {m: results.average(group).mean for (m,), group in results.groups(chosen, ["shots"]).items()}
        printed = _printed(paper[paper.model == model], set(chosen.task))
        laws = fit_power_law(measured), fit_power_law({m: printed[m] for m in measured or printed if m in printed})
        for name in _TITLES:
            ours_of, printed_of = (getattr(law, name) if law else None for law in laws)
            score, digits = ours_of or printed_of, 2 if name == "r_squared" else 3
            if score and score.std:  # Show two digits of the standard error.
                digits = min(4, max(1, 1 - math.floor(math.log10(score.std))))
            cells[model, task, name] = tables.Cell(ours_of, printed_of, name != "r_squared", digits=digits)
    cells = {key: cell for key, cell in cells.items() if cell.ours or cell.paper}
    caption = (
        "Power law ε(m) = α m^β of kNN Prompting: least squares in logarithms; ± is the standard error of the fit. For "
        "the paper's models, we fitted the curve to the accuracies that the paper prints."
    )
    return tables.build("power_law", caption, axes, _TITLES, cells)


def _printed(paper: pd.DataFrame, tasks: set[str]) -> dict[float, float]:
    """Return the paper's accuracies by m, averaged over `tasks`, or over all of its own if `tasks` is empty."""
    numbers = paper[(paper.m != results.FILLS_CONTEXT) & (paper.task != published.AVERAGE)]
    numbers = numbers.assign(mean=[score.mean for score in numbers.score])
    by_task = numbers.pivot(index="m", columns="task", values="mean")
    return by_task.reindex(columns=sorted(tasks or by_task.columns)).dropna().mean(axis=1).to_dict()


EXPERIMENTS = (
    experiment.Experiment(
        "data_scaling",
        "Data scaling",
        "How error falls with m.",
        _draw,
    ),
    experiment.Experiment("robustness", "Robustness", "How much the draw of train rows matters.", _draw_spreads),
)
