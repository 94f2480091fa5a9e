"""Robustness (figure): the spread over 10 seeds for each anchor-set size, m = 32 … 1024."""

import statistics
from collections.abc import Sequence

from knnprompt_jax.paper import experiment, settings
from knnprompt_jax.report import distributions, names, published, scores
from knnprompt_jax.report.scores import Record, Score
from knnprompt_jax.report.tables import Cell, Table, TableRow

_SMALLEST = "gpt2-large"  # Of whose 32 shots the text says 3.83 against 9.14.


def _draw(shown: experiment.Shown) -> experiment.Drawn:
    caption = (
        "Spread over seeds. Box: quartiles and median; whiskers: 1.5 times the box's height at most; dots: seeds; hollow: the "
        "paper's mean ± standard deviation in its table of data scaling."
    )
    drawn, figures = experiment.drawn(("m", "method"), distributions.boxes, caption)(shown)
    return [*drawn, _spread(shown.records)], figures


def _spread(records: Sequence[Record]) -> Table:
    """The standard deviations over seeds, averaged over tasks, for each model, m and method."""
    axes = ("model", "m", "method")
    methods, models = ["icl", "knn"], [_SMALLEST, published.MODEL, *(record.model for record in records)]
    paper = published.matching("data_scaling", methods, models, (), ())
    paper = [number for number in paper if number.model in models and number.score.std is not None]
    ours, theirs = scores.pool(records, *axes), scores.pool(paper, *axes)
    tasks = {record.task for record in records}
    rows = []
    for place in names.ordered_places(axes, {**ours, **theirs}):
        measured, printed = _average(ours.get(place, [])), [number.score.std for number in theirs.get(place, [])]
        same = len(printed) == len(tasks)
        ran = len({record.task for record in ours.get(place, [])})
        fewer = (f"over {ran} of {len(tasks)} tasks",) if measured and ran < len(tasks) else ()
        cell = Cell(
            measured, Score(statistics.fmean(filter(None, printed))) if printed else None, same, fewer, digits=2
        )
        rows.append(TableRow(tuple(map(names.text, axes, place)), (cell,)))
    caption = (
        "Sample standard deviation over seeds in points, averaged over tasks; the paper's from the rounded numbers of its table of "
        "data scaling (its text: 3.83 for kNN Prompting against 9.14, of 0.8B with m = 32)."
    )
    return Table("robustness_spread", caption, tuple(names.HEADERS[axis] for axis in axes), ("spread",), tuple(rows))


def _average(records: Sequence[Record]) -> Score | None:
    """The mean over tasks of the standard deviation; None where a task has one seed."""
    stds = [scores.accuracy(group).std for group in scores.pool(records, "task").values()]
    known = [std for std in stds if std is not None]
    return Score(statistics.fmean(known)) if known and len(known) == len(stds) else None


EXPERIMENTS = (
    experiment.Experiment(
        "robustness",
        "Robustness",
        "How much the draw of train rows matters.",
        _draw,
        defaults={"seeds": settings.TEN_SEEDS},
    ),
)
