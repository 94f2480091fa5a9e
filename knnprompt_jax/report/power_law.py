"""The paper's data utility: error ε(m) = α m^β, fitted as a line in logarithms (Section 4.1)."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from knnprompt_jax.report import drawing, names, published, scores
from knnprompt_jax.report.scores import Record, Score
from knnprompt_jax.report.tables import Cell, Row, Table

_PRINTED_AS = "kNN Prompting"
_AVERAGE = "average"


@dataclasses.dataclass(frozen=True)
class Fit:
    """`alpha` and `beta` with their standard errors, and the share of the variance of log ε that the line explains."""

    alpha: Score
    beta: Score
    r_squared: float

    def error(self, m: np.ndarray) -> np.ndarray:
        return self.alpha.mean * m**self.beta.mean


def knn(records: Sequence[Record]) -> list[Record]:
    """Those of kNN Prompting as the paper prints it."""
    return [record for record in records if published.is_printed_as(record.method, _PRINTED_AS)]


def fit(accuracies: Mapping[int, float]) -> Fit | None:
    """The law through accuracies in % by m; None where fewer than three points have any error left."""
    points = [(m, 1 - accuracy / 100) for m, accuracy in accuracies.items() if accuracy < 100]
    if len(points) < 3:
        return None
    line = stats.linregress(*np.log(np.array(points)).T)
    alpha = float(np.exp(line.intercept))
    beta = Score(float(line.slope), float(line.stderr))
    return Fit(Score(alpha, alpha * float(line.intercept_stderr)), beta, float(line.rvalue) ** 2)


def table(records: Sequence[Record]) -> Table:
    """α and β of every model and task of kNN Prompting's records, beside those of the same fit through the paper's numbers."""
    groups = scores.pool(records, "model", "task")
    groups |= {(*place, _AVERAGE): group for place, group in scores.pool(records, "model").items()}
    rows = []
    for model, task in names.ordered_places(("model", "task"), groups):
        ours, paper = fit(_ours(groups[model, task])), fit(_papers(model, task, groups[model, task]))
        if ours:
            alpha = Cell(ours.alpha, paper.alpha if paper else None, bool(paper))
            beta = Cell(ours.beta, paper.beta if paper else None, bool(paper))
            explained = Cell(Score(ours.r_squared), Score(paper.r_squared) if paper else None)
            rows.append(Row((names.model(model), names.task(task)), (alpha, beta, explained), digits=3))
    caption = (
        "Power law ε(m) = α m^β of kNN Prompting: least squares in logarithms; ± is the standard error of the fit."
    )
    return Table("power_law", caption, ("Model", "Task"), ("α", "β", "R²"), tuple(rows))


def figure(records: Sequence[Record]) -> drawing.Figure:
    """Error against m on logarithmic axes with the fitted lines, averaged over tasks and for each task."""
    models = names.ordered("model", [record.model for record in records])
    looks = {model: names.look("model", model, models) for model in models}
    parts = names.by_task(records)
    if len(parts) > 1:
        parts = {"average over tasks": list(records), **parts}
    panels = tuple(_panel(title, part, looks) for title, part in parts.items())
    caption = "Power law of data scaling: points are errors with ± one standard deviation over seeds, lines are fits of ε(m) = α m^β."
    legend = {names.model(model) + _law(records, model): look for model, look in looks.items()}
    return drawing.Figure("power_law", caption, panels, drawing.legend(legend))


def _law(records: Sequence[Record], model: str) -> str:
    law = fit(_ours([record for record in records if record.model == model]))
    text = f": α = {law.alpha.mean:.2f}, β = {law.beta.mean:.3f} on average" if law else ""
    return text.replace("-", "−")


def _panel(title: str, records: Sequence[Record], looks: Mapping[str, drawing.Look]) -> str:
    from matplotlib import ticker

    panel = drawing.Panel(title, "m, train rows per class", "error ε, %")
    for (model,), group in scores.pool(records, "model").items():
        look = looks[model]
        points = {m: scores.average(runs) for (m,), runs in sorted(scores.pool(group, "shots").items())}
        errors, bars = [100 - score.mean for score in points.values()], [score.std or 0 for score in points.values()]
        panel.axes.errorbar(list(points), errors, bars, **look.style | {"linestyle": "none"}, elinewidth=0.8)
        if law := fit({m: score.mean for m, score in points.items()}):
            m = np.geomspace(min(points), max(points), 2)
            panel.axes.plot(m, 100 * law.error(m), color=look.colour, linestyle=look.dash)
    panel.ticks([record.shots for record in records])
    panel.axes.set_yscale("log")
    low, high = panel.axes.get_ylim()
    shown = [value for value in ticker.MaxNLocator(5).tick_values(low, high) if low <= value <= high]
    panel.axes.set_yticks(shown, [f"{value:g}" for value in shown])
    panel.axes.minorticks_off()
    return panel.svg


def _ours(records: Sequence[Record]) -> dict[int, float]:
    return {m: scores.average(group).mean for (m,), group in scores.pool(records, "shots").items()}


def _papers(model: str, task: str, records: Sequence[Record]) -> dict[int, float]:
    """The paper's accuracies with the same model, at our m, of the task or averaged over our tasks."""
    tasks = {record.task for record in records} if task == _AVERAGE else {task}
    accuracies: dict[int, float] = {}
    for m in {record.shots for record in records}:
        place: dict[str, Any] = {"model": published.model_of(model), "shots": m, "method": "knn"}
        cells = [published.find(records[0].experiment, **place, task=name) for name in tasks]
        known = [cell for cell in cells if cell]
        if len(known) == len(cells):
            accuracies[m] = published.average(known).mean
    return dict(sorted(accuracies.items()))
