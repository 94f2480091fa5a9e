"""The paper's data utility: a power law ε(m) = α m^β of the error, fitted as a line in logarithms (Section 4.1)."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from knnprompt_jax.methods import registry
from knnprompt_jax.report import drawing, names, published, results, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.report.tables import Cell, Table

_PRINTED_AS = "kNN Prompting"


@dataclasses.dataclass(frozen=True)
class Fit:
    """`alpha` and `beta` with their standard errors, and the share of the variance of log ε that the line explains."""

    alpha: Score
    beta: Score
    r_squared: float

    def error(self, m: np.ndarray) -> np.ndarray:
        return self.alpha.mean * m**self.beta.mean


def knn(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of kNN Prompting as the paper prints it."""
    return frame[frame.method.isin([name for name in registry.METHODS if published.is_printed_as(name, _PRINTED_AS)])]


def fit(accuracies: Mapping[int, float]) -> Fit | None:
    """Return the law through accuracies in % by m; None if fewer than three points have an error above 0."""
    points = [(m, 1 - accuracy / 100) for m, accuracy in accuracies.items() if accuracy < 100]
    if len(points) < 3:
        return None
    line = stats.linregress(*np.log(np.array(points)).T)
    alpha = float(np.exp(line.intercept))
    beta = Score(float(line.slope), float(line.stderr))
    return Fit(Score(alpha, alpha * float(line.intercept_stderr)), beta, float(line.rvalue) ** 2)


def table(ours: pd.DataFrame, paper: pd.DataFrame) -> Table:
    """Return α and β for every model and task, beside those of the same fit through the paper's numbers at the same m.

    A model that only the paper ran has a row for its average.
    """
    axes, cells = ("model", "task"), {}
    places = {(model, published.AVERAGE) for model in (*ours.model, *paper.model)} | set(results.groups(ours, axes))
    for model, task in names.ordered_places(axes, places):
        runs = ours[ours.model == model]
        measured = _measured(runs if task == published.AVERAGE else runs[runs.task == task])
        printed = _printed(model, task, set(runs.task), paper)
        laws = fit(measured), fit({m: printed[m] for m in measured or printed if m in printed})
        if any(laws):
            cells[model, task] = {name: _cell(name, *laws) for name in ("alpha", "beta", "r_squared")}
    caption = (
        "Power law ε(m) = α m^β of kNN Prompting: least squares in logarithms; ± is the standard error of the fit. The paper "
        "prints none of these numbers: its are those of the same fit through its accuracies."
    )
    return tables.build("power_law", caption, axes, {"alpha": "α", "beta": "β", "r_squared": "R²"}, cells)


def _cell(name: str, ours: Fit | None, paper: Fit | None) -> Cell:
    """Return one number of both laws, with enough digits to show two of its standard error."""
    if name == "r_squared":
        first, second = (Score(law.r_squared) if law else None for law in (ours, paper))
        return Cell(first, second, digits=2)
    first, second = (getattr(law, name) if law else None for law in (ours, paper))
    known = first or second
    std = known.std if known else None
    digits = min(4, max(1, 1 - math.floor(math.log10(std)))) if std else 3
    return Cell(first, second, comparable=bool(first and second), digits=digits)


def figure(ours: pd.DataFrame, paper: pd.DataFrame) -> drawing.Figure:
    """Draw the error against m on logarithmic axes with the fitted lines, averaged over tasks and for each task."""
    looks = names.looks("model", [*ours.model, *paper.model])
    tasks = sorted(set(ours.task))
    parts = {published.AVERAGE: ours} if len(tasks) > 1 else {}
    parts |= {task: ours[ours.task == task] for task in tasks}
    caption = (
        "Power law of data scaling: points are errors with ± one standard deviation over seeds, lines are fits of ε(m) = α m^β"
        + ("; hollow marks and dotted lines: the paper's." if len(paper) else ".")
    )
    legend = {names.model(model) + _law_in_words(ours[ours.model == model]): look for model, look in looks.items()}
    panels = tuple(_panel(task, part, paper, looks) for task, part in parts.items())
    return drawing.Figure("power_law", caption, panels, drawing.legend(legend))


def _law_in_words(ours: pd.DataFrame) -> str:
    law = fit(_measured(ours))
    text = f": α = {law.alpha.mean:.2f}, β = {law.beta.mean:.3f} on average" if law else ""
    return text.replace("-", "−")


def _panel(task: str, ours: pd.DataFrame, paper: pd.DataFrame, looks: Mapping[str, drawing.Look]) -> str:
    from matplotlib import ticker

    title = "average over tasks" if task == published.AVERAGE else names.task(task)
    panel = drawing.Panel(title, "m, train rows per class", "error ε, %")
    for model, look in looks.items():
        runs = ours[ours.model == model]
        points = {m: results.average(group) for (m,), group in sorted(results.groups(runs, ["shots"]).items())}
        bars = [score.std or 0 for score in points.values()]
        _draw(panel, look.style, {m: score.mean for m, score in points.items()}, bars)
        hollow = {"markerfacecolor": "none", "linestyle": ":", "alpha": 0.7}
        _draw(panel, look.style | hollow, _printed(model, task, set(ours.task), paper))
    panel.ticks(ours.shots)
    panel.axes.set_yscale("log")
    low, high = panel.axes.get_ylim()
    shown = [value for value in ticker.MaxNLocator(5).tick_values(low, high) if low <= value <= high]
    panel.axes.set_yticks(shown, [f"{value:g}" for value in shown])
    panel.axes.minorticks_off()
    return panel.svg


def _draw(
    panel: drawing.Panel, style: dict, accuracies: Mapping[int, float], bars: Sequence[float] | None = None
) -> None:
    """Draw the errors by m and the line fitted to them."""
    errors = [100 - accuracy for accuracy in accuracies.values()]
    if errors:
        panel.axes.errorbar(list(accuracies), errors, bars, **style | {"linestyle": "none"}, elinewidth=0.8)
    if law := fit(accuracies):
        m = np.geomspace(min(accuracies), max(accuracies), 2)
        panel.axes.plot(m, 100 * law.error(m), **style | {"marker": "", "linewidth": 1.2})


def _measured(ours: pd.DataFrame) -> dict[int, float]:
    """Return the accuracies by m, averaged over tasks."""
    return {m: results.average(group).mean for (m,), group in results.groups(ours, ["shots"]).items()}


def _printed(model: str, task: str, tasks: set[str], paper: pd.DataFrame) -> dict[int, float]:
    """Return the paper's accuracies by m: on a task, or averaged over `tasks`, or over its own if `tasks` is empty."""
    numbers = paper[(paper.model == model) & (paper.m != results.FILLS_CONTEXT)]
    same = numbers[numbers.tasks.map(lambda printed: not tasks or set(printed) == tasks).astype(bool)]
    if task != published.AVERAGE or len(same):
        chosen = same if len(same) else numbers
        chosen = chosen[chosen.task == task]
        return {m: score.mean for m, score in zip(chosen.m, chosen.score, strict=True)}
    by_m = results.groups(numbers[numbers.task.isin(tasks)], ["m"])
    return {
        m: statistics.fmean(score.mean for score in group.score)
        for (m,), group in by_m.items()
        if len(group) == len(tasks)
    }
