"""The paper's tables and figures, as declarations in the order of the page, and the report on a folder of records.

To add one, add it to `EXPERIMENTS` and write its settings to a file in `configs/`.
"""

import dataclasses
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

import pandas as pd

from knnprompt_jax.cli import command_settings as commands
from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.common import errors
from knnprompt_jax.report import accuracies, drawing, names, page, published, results, tables
from knnprompt_jax.report import records as records_lib
from knnprompt_jax.report.records import Record
from knnprompt_jax.report.results import Score
from knnprompt_jax.report.tables import Cell, Table
from knnprompt_jax.study import case_study, paper_experiment, power_law, task_statistics
from knnprompt_jax.study.paper_experiment import AXES, SPREAD, Data, Experiment

_TITLE = "kNN Prompting: results beside the paper's"
_TEXT = (
    "Tables and figures of “kNN Prompting: Beyond-Context Learning with Calibration-Free Nearest Neighbor Inference” "
    "(Xu et al., ICLR 2023), then tables of other runs: mean over seeds ± the sample standard deviation. Tables show our "
    "number above the paper's. For the same model, they show the difference, too: ✓ if it is at most two standard "
    "errors, ✗ if it is more."
)
_PRIOR = "prior_reliance"
_PRIOR_AXES = ("model", "setting", "method")
_SST2 = "sst2"
_SST2_ROWS = 256  # Test rows.
_TOLERANCE = 2  # Maximum rows per seed that may differ.
_BY_SHOTS = drawing.Plot("m", drawing.SHOTS)
_BY_SPLIT = drawing.Plot("anchor_shots", "|A|, anchors per class", "demo_shots", ("method", "task"), average=False)
_BY_SHARE = drawing.Plot("ratio", "λ, share of one class in train", panel=("task", "regime"), average=False)
_BY_K = drawing.Plot("k", "k, nearest anchors", line="m", log=False)


def _paper_priors() -> pd.DataFrame:
    """Return the paper's numbers by setting, method and ratio or summary, all of them averages over tasks."""
    table = published.tables()[_PRIOR]
    numbers = []
    for row in table["rows"]:
        count = published.num_seeds(_PRIOR, row["method"])
        means: dict[Any, float] = {float(ratio): mean for ratio, mean in row["ratio"].items()}
        means |= {"average": row["avg"], "drop": row["max_drop"]}
        for ratio, mean in means.items():
            number = {"model": table["model"], "setting": row["setting"], "ratio": ratio}
            number |= {"method": published.method_of(row["method"]), "score": Score(mean, None, count)}
            numbers.append(number)
    return pd.DataFrame(numbers)


class _PriorReliance(Experiment):
    """An experiment whose table has averages over tasks."""

    def tables_and_figures(self, data: Data) -> tuple[list[Table], list[drawing.Figure]]:
        """Return means over tasks per model, setting and method; there is no mean at a λ that a task lacks."""
        ours = data.ours
        tasks = set(ours.task)
        same_tasks = tasks == {task.lower() for task in published.tables()[_PRIOR]["tasks"]}

        def average(runs: pd.DataFrame) -> Score | None:
            return results.average(runs) if set(runs.task) == tasks else None

        paper = _paper_priors()
        axes = (*_PRIOR_AXES, "ratio")
        cells = tables.pivot(ours, paper, axes, average, accuracies.cell_marks, comparable=same_tasks)
        for row in {key[:-1] for key in cells}:
            means = {key[-1]: cell.ours.mean for key, cell in cells.items() if key[:-1] == row and cell.ours}
            summaries = {"average": statistics.fmean(means.values())} if means else {}
            skewed = [mean for ratio, mean in means.items() if ratio != paper_experiment.BALANCED]
            if skewed and paper_experiment.BALANCED in means:
                summaries["drop"] = min(skewed) - means[paper_experiment.BALANCED]
            comparable = same_tasks and means.keys() == {*paper.ratio} - {"average", "drop"}
            for summary in ("average", "drop"):
                score = Score(summaries[summary]) if summary in summaries else None
                printed = cells.get((*row, summary), Cell()).paper
                cells[*row, summary] = Cell(score, printed, comparable=comparable, paper_digits=2)
        ratios = names.ordered("ratio", {key[-1] for key in cells} - {"average", "drop"})
        titles = {ratio: f"λ = {ratio:g}" for ratio in ratios} | {"average": "average", "drop": "drop"}
        tasks_run = ", ".join(map(names.task, names.ordered("task", tasks)))
        caption = f"{self.caption} Our averages are over {tasks_run}."
        return [tables.build(_PRIOR, caption, _PRIOR_AXES, titles, cells)], []


def _sst2_table(ours: pd.DataFrame) -> Table:
    """Return a row per method and a column per seed, in shares of 1."""
    released = published.tables()["released_code_sst2"]
    numbers = []
    for method, m, key in (("icl", results.FILLS_CONTEXT, "icl"), ("knn", 1024, "knn_prompting_1024")):
        for seed, accuracy in zip(released["seeds"], released[key], strict=True):
            number = {"model": released["model"], "method": method, "m": m, "seed": seed, "score": Score(accuracy)}
            numbers.append(number)
    ours = ours[ours.task == _SST2]
    axes = (*AXES, "seed")
    cells = tables.pivot(ours, pd.DataFrame(numbers), axes, lambda runs: Score(runs.accuracy.iloc[0] / 100), digits=4)
    columns = {seed: f"seed {seed}" for seed in names.ordered("seed", [*released["seeds"], *ours.seed])}
    caption = "Accuracy on SST2 by seed, beside the README of the paper's released code."
    return tables.build(_SST2, caption, AXES, columns, cells)


class _Sst2(Experiment):
    """The gate: an experiment whose records are checked against the released accuracies."""

    def tables_and_figures(self, data: Data) -> tuple[list[Table], list[drawing.Figure]]:
        """Return the table of seeds, with the verdict below it."""
        table = _sst2_table(data.ours)
        notes = ("; ".join(check_sst2(list(data.ours.record))[1]),) if len(data.ours) else ()
        return [dataclasses.replace(table, notes=notes)], []

    def check(self, folder: pathlib.Path) -> str:
        """Return the verdict on the finished records; raise UserError if it is FAIL."""
        has_failed, lines = check_sst2(self.read(folder))
        if has_failed:
            raise errors.UserError("; ".join(lines))
        return "\n  ".join(lines)


def check_sst2(records: Sequence[Record]) -> tuple[bool, list[str]]:
    """Compare the records of gpt2-xl with the released accuracies, and count the rows that each seed differs in.

    Returns whether too many rows differ, and lines for the terminal, the conclusion first.

    The accuracies need the published train file and the direction of the released code, reverse_kl. Another device or
    library may change a row or two; a wrong template, draw, direction or weight changes many more.
    """
    released = published.tables()["released_code_sst2"]
    model = released["model"]
    ours = results.frame([record for record in records if published.paper_name(record.model) == model])
    ours = ours[ours.true.map(len) == _SST2_ROWS].assign(model=model)
    if ours.empty:
        return False, [f"gate: no verdict: the expected accuracies are {model}'s on all {_SST2_ROWS} rows of SST2"]
    lines = []
    differences = []
    table = _sst2_table(ours)
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell.difference is not None:
                differences.append(abs(round(_SST2_ROWS * cell.difference)))
                found = f"{cell.text}, expected {cell.paper_text}, {differences[-1]} rows differ"
                lines.append(f"{row.headers[-1]} {column}: {found}")
    worst = max(differences, default=0)
    num_missing = 2 * len(released["seeds"]) - len(differences)
    if worst > _TOLERANCE:
        conclusion = f"FAIL: up to {worst} of {_SST2_ROWS} rows differ, more than {_TOLERANCE}"
    elif num_missing:
        conclusion = f"incomplete: {num_missing} runs are missing"
    else:
        conclusion = f"pass: at most {worst} of {_SST2_ROWS} rows differ"
    return worst > _TOLERANCE, [f"gate: {conclusion}", *lines]


_DECLARED = (
    power_law.DATA_SCALING,
    power_law.ROBUSTNESS,
    Experiment(
        "few_shot",
        "Few shots",
        "So few train rows per class that the context could hold most of them.",
        caption=f"{SPREAD} |D| = 1; the rest are anchors.",
        figure=("Accuracy against m in the few-shot scenario.", _BY_SHOTS),
    ),
    Experiment(
        "low_resource",
        "Low resource",
        "More train rows than the context holds, for several models, with ensembles and fine-tuning.",
    ),
    Experiment(
        "prompt_compose",
        "Retrieved demonstrations",
        "The train rows nearest to a test row become its prompt (PromptCompose), by four retrievers.",
        figure=("kNN Prompting beside prompts composed of retrieved examples.", _BY_SHOTS),
    ),
    Experiment(
        "upper_bound",
        "Upper bound of demonstration selection",
        "The best of many random prompts, chosen on the test rows themselves: a bound, not a method.",
        caption=f"{SPREAD} ‰: the number of prompts per 1,000 that are as good as the upper bound.",
        cells=paper_experiment.cells_with_one_upper_bound,
    ),
    Experiment("distance", "Distance", "KL divergence of distributions beside L2 distance of hidden states."),
    Experiment(
        "whole_vs_partial", "Whole or partial distribution", "The whole vocabulary beside only the label words."
    ),
    Experiment(
        "fine_tuning",
        "Fine-tuning",
        "The same train rows, with and without training.",
        figure=("kNN Prompting beside fine-tuning.", _BY_SHOTS),
    ),
    _PriorReliance(
        _PRIOR,
        "Reliance on prior knowledge",
        "Classes out of balance in the train rows, the test rows or both.",
        axes=(*_PRIOR_AXES, "ratio"),
        caption="Accuracy in % averaged over tasks by the share λ of the positive class. A: train skewed; B: test "
        "skewed; C: both. Drop: the lowest skewed accuracy minus the balanced one.",
        settings=grids.PriorSettings,
        cells=paper_experiment.cells_by_prior,
    ),
    Experiment(
        "split_strategy",
        "Demonstrations or anchors",
        "Train rows per class split between demonstrations (D) and anchors (A).",
        axes=("model", "method", "demo_shots", "anchor_shots"),
        figure=("Mean accuracy in % for each split; the darker, the better within its panel.", _BY_SPLIT),
        make_figure=drawing.heatmaps,
        settings=grids.SplitSettings,
        cells=paper_experiment.cells_by_split,
    ),
    Experiment(
        "choice_of_k",
        "Choice of k",
        "The number of neighbours that vote.",
        axes=(*AXES, "k"),
        figure=("Accuracy against the number of neighbours, for each m.", _BY_K),
        cells=paper_experiment.cells_by_k,
    ),
    Experiment(
        "imbalance",
        "Imbalance",
        "One class with a shrinking share of the train rows; the test rows are unchanged.",
        axes=("model", "regime", "m", "method", "ratio"),
        caption=f"{SPREAD} λ: one class's share of the train rows.",
        figure=("Accuracy on the balanced test rows against the skew of the train rows.", _BY_SHARE),
        settings=grids.ImbalanceSettings,
        cells=paper_experiment.cells_by_share,
    ),
    case_study.EXPERIMENT,
    task_statistics.EXPERIMENT,
    _Sst2(
        _SST2,
        "SST2, seed by seed",
        "The run whose accuracies the README of the paper's released code prints: the gate before all others.",
    ),
)
EXPERIMENTS = {experiment.name: experiment for experiment in _DECLARED}


def of(settings: grids.GridSettings) -> Experiment:
    """Return the experiment that the settings name; raise UserError if there is none, or if it has other options."""
    experiment = EXPERIMENTS.get(settings.experiment)
    if experiment is None or not isinstance(settings, experiment.settings):
        advice = f"give --config=configs/NAME.py instead, with one of the names {', '.join(EXPERIMENTS)}"
        raise errors.UserError(f"--experiment={settings.experiment}: {advice}")
    return experiment


def report(settings: commands.ReportSettings) -> str:
    """Write the page and return its path, or return the tables that have records.

    Raises:
        UserError: there are no records of this version, or the format is html and a library for pages is missing.
    """
    folder = pathlib.Path(settings.records)
    if settings.format == "html":
        page.check(pathlib.Path(settings.output), "report", "; --format=text needs none")
        return f"page: {write(folder, pathlib.Path(settings.output))}"
    return "\n".join(page.to_text(section) for section in sections(folder, with_figures=False) if section.tables)


def write(folder: pathlib.Path, output: pathlib.Path) -> pathlib.Path:
    """Write the page of the results in a folder, and its tables, to another folder; return the path of the page."""
    with drawing.style():
        return page.write(output, "report", _TITLE, _TEXT, sections(folder))


def sections(folder: pathlib.Path, with_figures: bool = True) -> list[page.Section]:
    """Return the section of runs outside the paper, then those of experiments with records.

    Records of an experiment are in the folder or in its subfolder; others are in the folder.

    Args:
        folder: the results, or a packed file of them.
        with_figures: whether to draw figures, for which matplotlib is required.

    Raises:
        UserError: there is no folder, it has no records, or a file is of another version.
    """
    found = {name: [*experiment.read(folder / name)] for name, experiment in EXPERIMENTS.items()}
    others: list[Record] = []
    for record in records_lib.read_all(folder):
        found.get(record.experiment, others).append(record)
    if not others and not any(found.values()):
        raise errors.UserError(f"{folder}: no records here or in subfolders {', '.join(list(EXPERIMENTS)[:3])} …")
    drawn: list[page.Section] = [accuracies.section(others)] if others else []
    for name in filter(found.get, found):
        own_folder = folder / name if (folder / name).is_dir() else folder
        section = EXPERIMENTS[name].section(found[name], own_folder, with_figures)
        if section.tables or section.figures or section.maps:
            drawn.append(section)
    return drawn
