"""Data scaling (table, figure, power law and the paper's first two figures) and robustness, with m from 32 to 1024.

The error follows a power law ε(m) = α m^β, which is fitted as a line in logarithms (Section 4.1). The first figure and
the pilot figure of in-context learning against shots also use 1 to 32 shots in the few-shot regime. Robustness is the
spread over ten seeds.
"""

import dataclasses
import statistics
from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy import stats

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.report import accuracies, drawing, names, published, results, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.report.tables import Cell, Table
from knnprompt_jax.study.paper_experiment import AXES, SPREAD, Data, Experiment

_TITLES = {"alpha": "α", "beta": "β", "r_squared": "R²"}


class _DataScaling(Experiment):
    """An experiment in both regimes, with the fitted law."""

    def tables_and_figures(self, data: Data) -> tuple[list[Table], list[drawing.Figure]]:
        """Return the tables of both regimes and of the power law, and all figures."""
        full = dataclasses.replace(data, ours=data.ours[data.ours.regime == results.FULL])
        few_runs = data.ours[data.ours.regime == results.FEW_SHOT]
        few_paper = published.of("few_shot")
        few = Data("data_scaling_few", few_runs, few_paper[few_paper.method.isin(few_runs.method)], data.with_figures)
        few_caption = f"{SPREAD} Few-shot scenario: |D| = 1, or m for in-context learning."
        built = [
            accuracies.build(data.name, caption, data.ours, data.paper, AXES)
            for data, caption in ((full, self.caption), (few, few_caption))
        ]
        knn = full.ours[full.ours.method == "knn"]
        printed = full.paper[full.paper.method == "knn"]
        built.append(power_law_table(knn, printed))
        return built, _figures(full, few, knn, printed) if data.with_figures else []


def _figures(full: Data, few: Data, knn: pd.DataFrame, printed: pd.DataFrame) -> list[drawing.Figure]:
    """Draw all figures; `knn` and `printed` are kNN Prompting's accuracies in the full regime, ours and the paper's."""
    drawings = []
    if any(data.ours.method.isin(["icl", "knn"]).any() for data in (full, few)):
        drawings.append(_first(full, few))
    pilot = few.ours[few.ours.method == "icl"]
    if len(pilot):
        caption = "In-context learning against the shots in its prompt."
        plot = drawing.Plot("m", "shots in the prompt, per class")
        drawings.append(drawing.curves("pilot", caption, pilot, few.paper[few.paper.method == "icl"], plot))
    if len(knn):
        plot = drawing.Plot("m", drawing.SHOTS, line="model")
        drawings.append(drawing.curves("data_scaling", "kNN Prompting against m; |D| = M_T.", knn, printed, plot))
        caption = "Power law of data scaling: errors, and the fits of ε(m) = α m^β."
        plot = dataclasses.replace(plot, law=fit_power_law)
        drawings.append(drawing.curves("power_law", caption, knn, printed, plot))
    return drawings


def _first(full: Data, few: Data) -> drawing.Figure:
    """Draw the paper's first figure for a model: the context limits in-context learning, but not kNN Prompting."""
    models = results.by_model(joined(few.ours, full.ours))
    model = published.MODEL if published.MODEL in models else next(iter(models))
    paper = joined(few.paper, full.paper)
    paper = paper[paper.model == (model if model in published.SIZES.values() else published.MODEL)]
    caption = (
        f"In-context learning, whose curve ends where the context is full, and kNN Prompting with {names.model(model)}; "
        "|D| = M_T, and 1 in few-shot runs."
    )
    return drawing.curves("first", caption, models[model], paper, drawing.Plot("m", drawing.SHOTS))


def joined(few: pd.DataFrame, full: pd.DataFrame) -> pd.DataFrame:
    """Return the few-shot runs of both methods, then the full runs of kNN Prompting with other numbers of shots.

    Without few-shot runs, return the full runs of both methods.
    """
    axes = ["model", "task", "method", "m"]
    rest = full[full.method.isin(["knn"] if len(few) else ["icl", "knn"])]
    both = pd.concat([few[few.method.isin(["icl", "knn"])], rest])
    return both.drop_duplicates([*axes, "seed"] if "seed" in both else axes)


def fit_power_law(accuracy: Mapping[float, float]) -> "PowerLaw | None":
    """Return the law through accuracies in % by m; None if fewer than three points have an error above 0."""
    errors = {m: 1 - percent / 100 for m, percent in accuracy.items() if percent < 100}
    if len(errors) < 3:
        return None
    line = stats.linregress(np.log(list(errors)), np.log(list(errors.values())))
    alpha = float(np.exp(line.intercept))
    beta = Score(float(line.slope), float(line.stderr))
    return PowerLaw(Score(alpha, alpha * float(line.intercept_stderr)), beta, Score(float(line.rvalue) ** 2))


@dataclasses.dataclass(frozen=True)
class PowerLaw:
    """`alpha` and `beta` with their standard errors, and the share of the variance of log ε that the line explains."""

    alpha: Score
    beta: Score
    r_squared: Score

    def error(self, m: np.ndarray) -> np.ndarray:
        """Return the expected error in % at each m."""
        return 100 * self.alpha.mean * m**self.beta.mean


def power_law_table(ours: pd.DataFrame, paper: pd.DataFrame) -> Table:
    """Return α and β for every model and task, beside those of a fit through the paper's numbers at the same m.

    Averages are fitted at the m that all tasks of the model have. A model that only the paper ran has a row for its
    average.
    """
    averages = [(model, published.AVERAGE) for model in (*ours.model, *paper.model)]
    cells: dict[tuple, Cell] = {}
    for model, task in dict.fromkeys([*averages, *results.groups(ours, ("model", "task"))]):
        runs = ours[ours.model == model]
        if task == published.AVERAGE:
            num_tasks = runs.groupby("shots").task.transform("nunique")
            runs = runs[num_tasks == runs.task.nunique()]
        else:
            runs = runs[runs.task == task]
        measured = {m: results.average(group).mean for (m,), group in results.groups(runs, ["shots"]).items()}
        printed = _printed(paper[paper.model == model], set(runs.task))
        law = fit_power_law(measured)
        printed_law = fit_power_law({m: printed[m] for m in measured or printed if m in printed})
        for name in _TITLES if law or printed_law else ():
            scores = (getattr(law, name, None), getattr(printed_law, name, None))
            cells[model, task, name] = Cell(*scores, comparable=name != "r_squared", digits=3)
    caption = "Power law ε(m) = α m^β of kNN Prompting, fitted in logarithms; ±: the standard error of the fit."
    return tables.build("power_law", caption, ("model", "task"), _TITLES, cells)


def _printed(paper: pd.DataFrame, tasks: set[str]) -> dict[float, float]:
    """Return the paper's accuracies by m, averaged over `tasks`, or over all of its own if `tasks` is empty."""
    numbers = paper[(paper.m != results.FILLS_CONTEXT) & (paper.task != published.AVERAGE)]
    numbers = numbers.assign(mean=[score.mean for score in numbers.score])
    by_task = numbers.pivot(index="m", columns="task", values="mean")
    return by_task.reindex(columns=sorted(tasks or by_task.columns)).dropna().mean(axis=1).to_dict()


class _Robustness(Experiment):
    """An experiment with a table of spreads over seeds."""

    def tables_and_figures(self, data: Data) -> tuple[list[Table], list[drawing.Figure]]:
        """Add the standard deviation over seeds, averaged over tasks, for each model, m and method."""
        built, drawings = super().tables_and_figures(data)
        ours = data.ours
        paper = published.of("data_scaling")
        paper = paper[paper.task.isin(ours.task)]
        stds = ours.groupby([*AXES, "task"], as_index=False).accuracy.std().dropna()
        printed = paper.assign(std=[score.std for score in paper.score])
        printed = printed.groupby(list(AXES), as_index=False)["std"].mean()
        printed = printed.assign(score=[Score(std) for std in printed["std"]], statistic="spread")
        cells = tables.pivot(
            stds.assign(statistic="spread"),
            printed,
            (*AXES, "statistic"),
            lambda runs: Score(statistics.fmean(runs.accuracy)) if runs.task.nunique() == ours.task.nunique() else None,
            digits=2,
        )
        caption = "Sample standard deviation over seeds in points, averaged over tasks; the paper's of data scaling."
        return [*built, tables.build("robustness_spread", caption, AXES, {"spread": "spread"}, cells)], drawings


DATA_SCALING = _DataScaling(
    "data_scaling",
    "Data scaling",
    "How error falls with m.",
    axes=("regime", *AXES),
    caption=f"{SPREAD} |D| = M_T.",
    settings=grids.ScalingSettings,
)
ROBUSTNESS = _Robustness(
    "robustness",
    "Robustness",
    "How much the draw of train rows matters.",
    figure=(
        "Spread over seeds. Box: quartiles and median; whiskers: at most 1.5 times the box's height; circles: seeds "
        "beyond.",
        drawing.Plot("m", drawing.SHOTS, average=False),
    ),
    make_figure=drawing.boxes,
)
