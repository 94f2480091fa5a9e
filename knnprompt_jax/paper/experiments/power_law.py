"""The paper's data utility: a power law ε(m) = α m^β of the error, fitted as a line in logarithms (Section 4.1)."""

import dataclasses
import math
import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from knnprompt_jax.methods import registry
from knnprompt_jax.report import published, results, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.report.tables import Table

_PRINTED_AS = "kNN Prompting"
_TITLES = {"alpha": "α", "beta": "β", "r_squared": "R²"}


@dataclasses.dataclass(frozen=True)
class Fit:
    """`alpha` and `beta` with their standard errors, and the share of the variance of log ε that the line explains."""

    alpha: Score
    beta: Score
    r_squared: Score

    def error(self, m: np.ndarray) -> np.ndarray:
        """Return the expected error in % at each m."""
        return 100 * self.alpha.mean * m**self.beta.mean


def knn(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of kNN Prompting as the paper prints it."""
    return frame[
        frame.method.isin([name for name, method in registry.METHODS.items() if _PRINTED_AS in method.printed_as])
    ]


def fit(accuracies: Mapping[float, float]) -> Fit | None:
    """Return the law through accuracies in % by m; None if fewer than three points have an error above 0."""
    points = [(m, 1 - accuracy / 100) for m, accuracy in accuracies.items() if accuracy < 100]
    if len(points) < 3:
        return None
    line = stats.linregress(*np.log(np.array(points)).T)
    alpha = float(np.exp(line.intercept))
    beta = Score(float(line.slope), float(line.stderr))
    return Fit(Score(alpha, alpha * float(line.intercept_stderr)), beta, Score(float(line.rvalue) ** 2))


def table(ours: pd.DataFrame, paper: pd.DataFrame) -> Table:
    """Return α and β for every model and task, beside those of the same fit through the paper's numbers at the same m.

    A model that only the paper ran has a row for its average.
    """
    axes, places = ("model", "task"), {(model, published.AVERAGE) for model in (*ours.model, *paper.model)}
    laws: tuple[dict[tuple, Score], dict[tuple, Score]] = {}, {}
    for model, task in places | set(results.groups(ours, axes)):
        runs = ours[ours.model == model]
        measured = _measured(runs if task == published.AVERAGE else runs[runs.task == task])
        printed = _printed(model, task, set(runs.task), paper)
        fits = fit(measured), fit({m: printed[m] for m in measured or printed if m in printed})
        for scores, law in zip(laws, fits, strict=True):
            scores |= {(model, task, name): getattr(law, name) for name in _TITLES if law}

    def attributes(key: tuple) -> dict[str, Any]:
        """Show two digits of the standard error."""
        if key[-1] == "r_squared":
            return {"digits": 2}
        score = laws[0].get(key) or laws[1].get(key)
        digits = min(4, max(1, 1 - math.floor(math.log10(score.std)))) if score and score.std else 3
        return {"digits": digits, "comparable": True}

    caption = (
        "Power law ε(m) = α m^β of kNN Prompting: least squares in logarithms; ± is the standard error of the fit. The paper "
        "prints none of these numbers: its are those of the same fit through its accuracies."
    )
    return tables.build("power_law", caption, axes, _TITLES, *laws, attributes=attributes)


def _measured(ours: pd.DataFrame) -> dict[float, float]:
    """Return the accuracies by m, averaged over tasks."""
    return {m: results.average(group).mean for (m,), group in results.groups(ours, ["shots"]).items()}


def _printed(model: str, task: str, tasks: set[str], paper: pd.DataFrame) -> dict[float, float]:
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
