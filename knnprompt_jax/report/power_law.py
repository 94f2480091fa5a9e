"""The paper's data utility: error ε(m) = α m^β, fitted as a line in logarithms (Section 4.1)."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from scipy import stats

from knnprompt_jax.report import drawing, names, published, scores
from knnprompt_jax.report.published import Printed
from knnprompt_jax.report.scores import Record, Score
from knnprompt_jax.report.tables import Cell, Table, TableRow

_PRINTED_AS = "kNN Prompting"
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Fit:
    """`alpha` and `beta` with their standard errors, and the share of the variance of log ε that the line explains."""

    alpha: Score
    beta: Score
    r_squared: float

    def error(self, m: np.ndarray) -> np.ndarray:
        return self.alpha.mean * m**self.beta.mean


def knn(records: Sequence[T]) -> list[T]:
    """Our records, or the paper's numbers, of kNN Prompting as the paper prints it."""
    return [each for each in records if published.is_printed_as(scores.axis(each, "method"), _PRINTED_AS)]


def fit(accuracies: Mapping[int, float]) -> Fit | None:
    """The law through accuracies in % by m; None where fewer than three points have any error left."""
    points = [(m, 1 - accuracy / 100) for m, accuracy in accuracies.items() if accuracy < 100]
    if len(points) < 3:
        return None
    line = stats.linregress(*np.log(np.array(points)).T)
    alpha = float(np.exp(line.intercept))
    beta = Score(float(line.slope), float(line.stderr))
    return Fit(Score(alpha, alpha * float(line.intercept_stderr)), beta, float(line.rvalue) ** 2)


def table(records: Sequence[Record], paper: Sequence[Printed] = ()) -> Table:
    """α and β of kNN Prompting for every model and task, beside those of the same fit through the paper's numbers at as many m.

    Where the paper has a model that we have not run, its average stands alone.
    """
    ours, averages = _points(records), {(number.model, published.AVERAGE): None for number in paper}
    rows = []
    for place in names.ordered_places(("model", "task"), {**ours, **averages}):
        printed = _printed(place[0], place[1], {record.task for record in records if record.model == place[0]}, paper)
        same = {m: printed[m] for m in ours.get(place, printed) if m in printed}
        rows.append(_row(place, fit(ours.get(place, {})), fit(same)))
    caption = (
        "Power law ε(m) = α m^β of kNN Prompting: least squares in logarithms; ± is the standard error of the fit. The paper prints "
        "none of these numbers: its are those of the same fit through its accuracies."
    )
    return Table("power_law", caption, ("Model", "Task"), ("α", "β", "R²"), tuple(filter(None, rows)))


def _row(place: tuple[str, str], ours: Fit | None, paper: Fit | None) -> TableRow | None:
    if not ours and not paper:
        return None
    cells = [_cell(getattr(ours, name, None), getattr(paper, name, None)) for name in ("alpha", "beta")]
    explained = Cell(_r_squared(ours), _r_squared(paper), digits=2)
    return TableRow((names.model(place[0]), names.task(place[1])), (*cells, explained))


def _cell(ours: Score | None, paper: Score | None) -> Cell:
    return Cell(ours, paper, bool(ours and paper), digits=_digits(ours or paper))


def _r_squared(law: Fit | None) -> Score | None:
    return Score(law.r_squared) if law else None


def _digits(score: Score | None) -> int:
    """As many digits after the point as show two of the standard error."""
    return min(4, max(1, 1 - math.floor(math.log10(score.std)))) if score and score.std else 3


def figure(records: Sequence[Record], paper: Sequence[Printed] = ()) -> drawing.Figure:
    """Error against m on logarithmic axes with the fitted lines, averaged over tasks and for each task."""
    models = names.ordered("model", [*(record.model for record in records), *(number.model for number in paper)])
    looks = {model: names.look("model", model, models) for model in models}
    parts = {published.AVERAGE: list(records)} if len({record.task for record in records}) > 1 else {}
    parts |= {task: group for (task,), group in sorted(scores.pool(records, "task").items())}
    panels = tuple(_panel(task, part, paper, looks) for task, part in parts.items())
    caption = (
        "Power law of data scaling: points are errors with ± one standard deviation over seeds, lines are fits of ε(m) = α m^β"
        + ("; hollow marks and dotted lines: the paper's." if paper else ".")
    )
    legend = {names.model(model) + _law(records, model): look for model, look in looks.items()}
    return drawing.Figure("power_law", caption, panels, drawing.legend(legend))


def _law(records: Sequence[Record], model: str) -> str:
    law = fit(_ours([record for record in records if record.model == model]))
    text = f": α = {law.alpha.mean:.2f}, β = {law.beta.mean:.3f} on average" if law else ""
    return text.replace("-", "−")


def _panel(task: str, records: Sequence[Record], paper: Sequence[Printed], looks: Mapping[str, drawing.Look]) -> str:
    from matplotlib import ticker

    title = "average over tasks" if task == published.AVERAGE else names.task(task)
    panel, tasks = drawing.Panel(title, "m, train rows per class", "error ε, %"), {record.task for record in records}
    for model, look in looks.items():
        group = [record for record in records if record.model == model]
        points = {m: scores.average(runs) for (m,), runs in sorted(scores.pool(group, "shots").items())}
        bars = [score.std or 0 for score in points.values()]
        _draw(panel, look.style, {m: score.mean for m, score in points.items()}, bars)
        hollow = {"markerfacecolor": "none", "linestyle": ":", "alpha": 0.7}
        _draw(panel, look.style | hollow, _printed(model, task, tasks, paper))
    panel.ticks([record.shots for record in records])
    panel.axes.set_yscale("log")
    low, high = panel.axes.get_ylim()
    shown = [value for value in ticker.MaxNLocator(5).tick_values(low, high) if low <= value <= high]
    panel.axes.set_yticks(shown, [f"{value:g}" for value in shown])
    panel.axes.minorticks_off()
    return panel.svg


def _draw(
    panel: drawing.Panel, style: dict, accuracies: Mapping[int, float], bars: Sequence[float] | None = None
) -> None:
    """Errors by m and the line fitted to them."""
    if not accuracies:
        return
    errors = [100 - accuracy for accuracy in accuracies.values()]
    panel.axes.errorbar(list(accuracies), errors, bars, **style | {"linestyle": "none"}, elinewidth=0.8)
    if law := fit(accuracies):
        m = np.geomspace(min(accuracies), max(accuracies), 2)
        panel.axes.plot(m, 100 * law.error(m), **style | {"marker": "", "linewidth": 1.2})


def _points(records: Sequence[Record]) -> dict[tuple[str, str], dict[int, float]]:
    """Accuracies by m, of each model and task, and averaged over tasks."""
    groups = scores.pool(records, "model", "task")
    groups |= {(model, published.AVERAGE): group for (model,), group in scores.pool(records, "model").items()}
    return {place: _ours(group) for place, group in groups.items()}


def _ours(records: Sequence[Record]) -> dict[int, float]:
    return {m: scores.average(group).mean for (m,), group in scores.pool(records, "shots").items()}


def _printed(model: str, task: str, tasks: set[str], paper: Sequence[Printed]) -> dict[int, float]:
    """The paper's accuracies by m: on a task, or averaged over ours, over its own where we have none."""
    numbers = [number for number in paper if number.model == model and number.m]
    same = [number for number in numbers if not tasks or set(number.tasks) == tasks]
    if task != published.AVERAGE or same:
        return {number.m: number.score.mean for number in (same or numbers) if number.task == task and number.m}
    groups = scores.pool([number for number in numbers if number.task in tasks], "m")
    means = {m: [number.score.mean for number in group] for (m,), group in groups.items()}
    return {m: statistics.fmean(values) for m, values in means.items() if len(values) == len(tasks)}
