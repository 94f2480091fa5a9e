"""Tables of the records of several models, tasks and m, in Markdown."""

import collections
import statistics
import types
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from knnprompt_jax.report import names, results
from knnprompt_jax.report import records as records_lib
from tools import analyses, intervals, markdown, scales

NO_MODEL = (scales.MOST_COMMON, "tfidf", "encoder_probe", "encoder_knn")  # Baselines that read no states.
BY_TASK = (
    *(scales.MOST_COMMON, "tfidf", "encoder_probe", "icl", "contextual_calibration", "batch_calibration"),
    *("knn", "hidden_centroids", "linear_probe", "auto"),
)
_USUAL_SEEDS = 5


def model_table(scale: scales.Scale) -> str:
    """Return what the models are, with the SHA-256 of their files."""
    rows = []
    for model in scale.models:
        about = scales.MODELS[model]
        own = [record for record in scale.records if scales.model_of(record) == model]
        # Later records, all of `auto`, have the SHA-256 of the folder that the file is converted to.
        (digest,) = {record.settings["model"] for record in own if record.method != "auto"}
        size = f"{about.parameters / 1e6:,.0f} million"
        rows.append([about.title, about.kind, size, about.quantisation, f"`{digest}`"])
    header = ["model", "training", "parameters", "quantisation", "SHA-256 of the GGUF file"]
    return markdown.table(header, rows, left=5)


def accuracy_table(scale: scales.Scale, model: str, m: int) -> str:
    """Return methods against tasks: mean ± standard deviation over seeds, and the mean over tasks.

    The first model's table has the baselines without a model.
    """
    cells = scale.cells([model], m)
    tabulated = [name for name in BY_TASK if model == scale.models[0] or name not in NO_MODEL]
    rows = []
    for method in tabulated:
        if scale.has(model, method, m, cells):
            scores = [scale.accuracy(model, method, m, task, seeds) for task, seeds in cells.items()]
            if method == scales.MOST_COMMON:  # It has no spread.
                scores = [results.Score(score.mean) for score in scores]
            mean = results.Score(scale.mean(model, method, m, cells))
            rows.append([scale.name(method), *(score.text() for score in [*scores, mean])])
    if any(len(seeds) != _USUAL_SEEDS for seeds in cells.values()):
        rows.append(["seeds", *(str(len(seeds)) for seeds in cells.values()), ""])
    return markdown.table(["method", *map(names.task, cells), "mean"], rows)


def shared_table(scale: scales.Scale, methods: Sequence[str], m: int) -> str:
    """Return the means of some methods for each model at m, over `shared`; methods without any are left out."""
    rows = []
    for name in methods:
        means = [scale.means(model, name).get(m) for model in scale.models]
        if any(means):
            rows.append([scale.name(name), *("–" if mean is None else f"{mean:.1f}" for mean in means)])
    return markdown.table([f"m = {m}", *(scales.MODELS[model].short for model in scale.models)], rows)


def spread_table(scale: scales.Scale, method: str, other: str, shots: Sequence[int], sizes: Sequence[str] = ()) -> str:
    """Return the standard deviations over seeds of a method at these m and of another one, means over `shared`.

    The tasks are those of every m of a model. In brackets: on how many of them the first method has the smaller one.

    Args:
        sizes: the paper's models to add.
    """
    rows = []
    for model in scale.models:
        cells = {m: own for m, own in scale.at_every_m(model).items() if m in shots}
        first = min(cells)
        theirs = _spreads(scale, model, other, first, cells[first])
        texts = dict.fromkeys(shots, "–")
        for m, own in cells.items():
            ours = _spreads(scale, model, method, m, own)
            texts[m] = f"{statistics.fmean(ours):.1f} ({np.less(ours, theirs).sum()} of {len(ours)})"
        rows.append([scales.MODELS[model].brief, f"{statistics.fmean(theirs):.1f}", *texts.values()])
    rows += [analyses.papers_spread(size, list(cells[first]), shots) for size in sizes]
    header = ["model", names.method(other), *(f"kNN, m = {m:,}" for m in shots)]
    return markdown.table(header, rows)


def axis_table(records: Iterable[records_lib.Record], axis: str, compared: tuple[float, float]) -> str:
    """Return tasks and methods against values on an axis of the grid: mean accuracies in %.

    The last column has the difference between the two compared values, paired by seed and row.
    """
    first, second = compared
    found: dict[tuple[str, str], dict[float, list[np.ndarray]]] = collections.defaultdict(dict)
    for record in sorted(records, key=lambda record: record.seed):
        found[record.task, record.method].setdefault(record.cell[axis], []).append(intervals.right_rows(record))
    values = sorted({value for by_value in found.values() for value in by_value})
    methods = {method for _, method in found}
    rows = []
    for task, method in names.ordered_keys(("task", "method"), found):
        right = {value: np.stack(each) for value, each in found[task, method].items()}
        label = f"{names.task(task)}, {names.method(method)}" if len(methods) > 1 else names.task(task)
        means = [f"{100 * right[value].mean():.1f}" for value in values]
        rows.append([label, *means, str(intervals.bootstrap([right[first] - right[second]]))])
    header = ["", *(f"{axis} = {value:.3g}" for value in values), f"{first:.3g} − {second:.3g}"]
    return markdown.table(header, rows)


def means_table(
    records: Iterable[records_lib.Record],
    printed: Sequence[Sequence[str]] = (),
    last: Mapping[str, Mapping[str, str]] = types.MappingProxyType({}),
) -> str:
    """Return mean accuracies in % over tasks and seeds, by `row` and `column` of the cells, and the printed rows.

    Args:
        last: further columns by their headers: a text for each row of the records.
    """
    found = collections.defaultdict(list)
    for record in records:
        found[record.cell["row"], record.cell["column"]].append(100 * record.accuracy)
    columns = sorted({column for _, column in found})
    rows = []
    for name in sorted({row for row, _ in found}):
        cells = [found[name, column] for column in columns]
        means = [f"{statistics.fmean(accuracies):.1f}" if accuracies else "–" for accuracies in cells]
        rows.append([name, *means, *(texts[name] for texts in last.values())])
    return markdown.table(["", *columns, *last], [*rows, *printed])


def _spreads(scale: scales.Scale, model: str, method: str, m: int, cells: Mapping[str, list[int]]) -> list[float]:
    """Return the sample standard deviation over seeds on each task."""
    return [scale.accuracy(model, method, m, task, seeds).std or 0.0 for task, seeds in cells.items()]
