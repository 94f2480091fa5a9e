"""SST2 with gpt2-xl, m = 1024 and five seeds: the gate before all other grids.

The README of the paper's released code prints the accuracy of each seed. These numbers need the published train file
and the direction of the released code, reverse_kl. Another device or library may change a row or two; a wrong template,
draw, direction or weight changes many more.
"""

import dataclasses
from collections.abc import Sequence

import pandas as pd

from knnprompt_jax.paper import experiment
from knnprompt_jax.report import names, published, results, tables
from knnprompt_jax.report.results import Record, Score

_AXES = ("model", "method", "m")
_PRINTED = {("icl", results.FILLS_CONTEXT): "icl", ("knn", 1024): "knn_prompting_1024"}
_TASK = "sst2"
_ROWS = 256  # Test rows.
_TOLERANCE = 2  # Rows that a seed may differ in.


def _draw(data: experiment.Data) -> experiment.Drawn:
    table = _table(data.ours[data.ours.task == _TASK])
    if len(data.ours):
        table = dataclasses.replace(table, notes=(str(check(list(data.ours.record))),))
    return [table], []


def _table(ours: pd.DataFrame) -> tables.Table:
    """Return a row per method and a column per seed: equal seeds need no spread."""
    released = published.tables()["released_code_sst2"]
    columns = {seed: f"seed {seed}" for seed in names.ordered("seed", [*released["seeds"], *ours.seed])}
    scores = {(run.model, run.method, run.m, run.seed): Score(run.accuracy / 100) for run in ours.itertuples()}
    printed = {
        (released["model"], method, m, seed): Score(accuracy)
        for (method, m), key in _PRINTED.items()
        for seed, accuracy in zip(released["seeds"], released[key], strict=True)
    }
    cells = {key: tables.Cell(scores.get(key), printed.get(key), True, digits=4) for key in {**scores, **printed}}
    caption = "Accuracy on SST2 by seed, beside the README of the paper's released code."
    return tables.build("sst2", caption, _AXES, columns, cells)


def check(records: Sequence[Record]) -> experiment.Verdict:
    """Compare the records with the released accuracies, and count the rows that each seed differs in."""
    model = published.tables()["released_code_sst2"]["model"]
    ours = results.frame([dataclasses.replace(record, model=published.canonical(record.model)) for record in records])
    ours = ours[(ours.model == model) & (ours.task == _TASK)]
    if ours.empty:
        return experiment.Verdict(
            (f"gate: no verdict: the expected accuracies are {model}'s on all {_ROWS} rows of SST2",)
        )
    results.check(ours, _AXES)
    table = _table(ours[ours.true.map(len) == _ROWS])
    lines = []
    differences = []
    missing = 0
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            missing += bool(cell.paper and not cell.ours)
            if cell.difference is not None:
                difference = round(_ROWS * cell.difference)
                differences.append(difference)
                line = f"{row.headers[1]} {column}: {cell.text}, expected {cell.paper_text}"
                lines.append(line + _in_rows(difference))
    worst = max(map(abs, differences), default=0)
    conclusion = _conclusion(worst, missing, missing + len(differences))
    return experiment.Verdict((f"gate: {conclusion}", *lines), has_failed=worst > _TOLERANCE)


def _conclusion(worst: int, missing: int, total: int) -> str:
    """Return the conclusion if `missing` of `total` runs are missing and one of the others differs in `worst` rows."""
    if worst > _TOLERANCE:
        return f"FAIL: up to {worst} of {_ROWS} rows differ, more than {_TOLERANCE}"
    if missing:
        return f"incomplete: {missing} of {total} runs are missing"
    if worst:
        return f"pass: at most {worst} of {_ROWS} rows differ"
    return "pass: every accuracy is the released one"


def _in_rows(difference: int) -> str:
    """Return a signed number of rows in brackets; nothing for 0."""
    if not difference:
        return ""
    unit = "row" if abs(difference) == 1 else "rows"
    return f" ({difference:+d} {unit})".replace("-", "−")


EXPERIMENTS = (
    experiment.Experiment(
        "sst2",
        "SST2, seed by seed",
        "The run whose accuracies the README of the paper's released code prints: the gate before all others.",
        _draw,
        check=check,
    ),
)
