"""Tables of the records of several models, tasks and m, in Markdown."""

import collections
import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from knnprompt_jax import tables
from knnprompt_jax.report import names, results
from knnprompt_jax.runs import records as records_lib
from tools import scales

NO_MODEL = (scales.MOST_COMMON, "tfidf", "encoder_probe", "encoder_knn")  # Baselines that read no states.
BY_TASK = (
    *(scales.MOST_COMMON, "tfidf", "encoder_probe", "icl", "batch_calibration"),
    *("knn", "hidden_centroids", "linear_probe", "chosen"),
)
_USUAL_SEEDS = 5


def model_table(scale: scales.Scale) -> str:
    """Return what the models are, with the SHA-256 of their files."""
    rows = []
    for model in scale.models:
        about = scales.MODELS[model]
        (digest,) = {record.settings["model"] for record in scale.records if scales.model_of(record) == model}
        size = f"{about.parameters / 1e6:,.0f} million"
        rows.append([about.title, about.kind, size, about.quantisation, f"`{digest}`"])
    header = ["model", "training", "parameters", "quantisation", "SHA-256 of the GGUF file"]
    return tables.render_markdown(header, rows, left=5)


def accuracy_table(scale: scales.Scale, model: str, m: int) -> str:
    """Return methods against tasks: mean ± standard deviation over seeds, and the mean over tasks.

    The first model's table has the baselines without a model.
    """
    cells, rows = scale.cells([model], m), []
    shown = [name for name in BY_TASK if model == scale.models[0] or name not in NO_MODEL]
    for method in (name for name in scale.shown(model, m) if name in shown):
        scores = [scale.accuracy(model, method, m, task, seeds) for task, seeds in cells.items()]
        texts = [
            f"{score.mean:.1f}" if method == scales.MOST_COMMON else f"{score.mean:.1f} ± {score.std:.1f}"
            for score in scores
        ]
        rows.append([scale.name(method), *texts, f"{scale.mean(model, method, m, cells):.1f}"])
    if any(len(seeds) != _USUAL_SEEDS for seeds in cells.values()):
        rows.append(["seeds", *(str(len(seeds)) for seeds in cells.values()), ""])
    return tables.render_markdown(["method", *map(names.task, cells), "mean"], rows)


def summary_table(scale: scales.Scale, methods: Sequence[str]) -> str:
    """Return the means of some methods for each model and m, over the tasks that all models have at that m."""
    places = [(model, m) for model in scale.models for m in scale.complete(scale.models)]
    header = ["mean over tasks", *(f"{scales.MODELS[model].short}, m = {m}" for model, m in places)]
    rows = []
    cells = {m: scale.cells(scale.models, m) for _, m in places}
    for method in methods:
        texts = [
            f"{scale.mean(model, method, m, cells[m]):.1f}" if scale.has(model, method, m, cells[m]) else "–"
            for model, m in places
        ]
        if {*texts} != {"–"}:
            rows.append([scale.name(method), *texts])
    rows.append(["tasks", *(str(len(cells[m])) for _, m in places)])
    return tables.render_markdown(header, rows)


def shared_table(scale: scales.Scale, methods: Sequence[str], m: int) -> str:
    """Return the means of some methods for each model at m, over `shared`."""
    found = {name: {model: scale.means(model, name).get(m) for model in scale.models} for name in methods}
    rows = [
        [scale.name(name), *("–" if mean is None else f"{mean:.1f}" for mean in means.values())]
        for name, means in found.items()
        if any(means.values())
    ]
    return tables.render_markdown([f"m = {m}", *(scales.MODELS[model].short for model in scale.models)], rows)


def spread_table(scale: scales.Scale, method: str, other: str) -> str:
    """Return the standard deviations over seeds of a method at each m and of another one, means over `shared`.

    The tasks are those of every m of a model. In brackets: on how many of them the first method has the smaller one.
    """
    shots = sorted({m for model in scale.models for m in scale.complete([model])})
    rows = []
    for model in scale.models:
        cells = scale.at_every_m(model)
        theirs = _spreads(scale, model, other, min(cells), cells[min(cells)])
        texts = dict.fromkeys(shots, "–")
        for m, own in cells.items():
            ours = _spreads(scale, model, method, m, own)
            texts[m] = f"{statistics.fmean(ours):.1f} ({np.less(ours, theirs).sum()} of {len(ours)})"
        rows.append([scales.MODELS[model].short, f"{statistics.fmean(theirs):.1f}", *texts.values()])
    header = ["model", names.method(other), *(f"m = {m}" for m in shots)]
    return tables.render_markdown(header, rows)


def axis_table(records: Iterable[records_lib.Record], axis: str, shows_spread: bool = False) -> str:
    """Return tasks and methods against values on an axis of the grid: mean accuracies in %, ± standard deviations."""
    accuracies = collections.defaultdict(list)
    for record in records:
        accuracies[record.task, record.method, record.cell[axis]].append(100 * record.accuracy)
    tasks, methods, values = map(set, zip(*accuracies, strict=True))
    rows = []
    for task, method in itertools.product(names.ordered("task", tasks), names.ordered("method", methods)):
        scores = [results.Score.of(accuracies[task, method, value]) for value in sorted(values)]
        label = names.task(task) + (f", {names.method(method)}" if len(methods) > 1 else "")
        rows.append([label, *(f"{score.mean:.1f}" + f" ± {score.std:.1f}" * shows_spread for score in scores)])
    heads = [value if isinstance(value, str) else f"{axis} = {value:.3g}" for value in sorted(values)]
    return tables.render_markdown(["", *heads], rows)


def _spreads(scale: scales.Scale, model: str, method: str, m: int, cells: Mapping[str, list[int]]) -> list[float]:
    """Return the sample standard deviation over seeds on each task."""
    return [scale.accuracy(model, method, m, task, seeds).std or 0.0 for task, seeds in cells.items()]
