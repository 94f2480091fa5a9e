"""Measure promised error rates, novelty and the rows that `look` lists, with SmolLM2; write docs/records.

python -m tools.measure_reliability promises --data_dir=data --tasks=sst2,trec --seeds=5
python -m tools.measure_reliability novelty --data_dir=data --tasks=banking50
python -m tools.measure_reliability labels --data_dir=data --tasks=sst2,trec --seeds=5
python -m tools.measure_reliability planted --data_dir=data --tasks=sst2,trec --seeds=5

`data_dir` has a folder per task with `train.jsonl` and a file of test rows, or with `train.csv`, `test.csv` and files
of texts out of scope, whose columns are `text` and `label`.

A fixed pool of train rows is read once, without demonstrations, and every seed draws from it. The cache of states keeps
what was read, and a finished run is not repeated: the same command resumes.
"""

import argparse
import dataclasses
import functools
import gzip
import json
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import knnprompt_jax as kp
from knnprompt_jax import tasks
from knnprompt_jax.classifier.confidence import selective
from knnprompt_jax.classifier.experts import expert, pool_fitting, views
from knnprompt_jax.classifier.experts.expert import Readings
from knnprompt_jax.classifier.fitted import Fitted
from knnprompt_jax.commands import evaluate_job, label_table
from knnprompt_jax.common import errors
from knnprompt_jax.inference import states
from knnprompt_jax.report.measures import Measures
from knnprompt_jax.tasks.task import Example, Task
from tools import pack_records

RECORDS = pack_records.FOLDER / "reliability.jsonl.gz"
PROMISES = (0.05, 0.1)
REJECTED = (0.02, 0.05)  # The values of `reject_novel`.
STEPS = (8, 16, 24, 32, 48, 64)  # Labelled rows per class; the first are drawn at random.
CANDIDATES = 0.75  # Of the pool: rows that may be labelled. The others measure the accuracy.
LABEL_EXPERTS = ("labels", "means", "probe", "words")  # A search of neighbours would take most of the time.
PLANTED_ROWS = 300
NUM_PLANTED = 8  # Of these rows get a wrong label.
MAX_PER_CLASS = 128  # Rows of a class of intents in the pool.
CACHE = states.open_disk_cache(8) or states.MemoryCache(256 * 2**20)


class Rows(NamedTuple):
    """The number of rows in the pool, the file of test rows and their number, and the rows per class to fit."""

    pool: int
    split: str
    test: int
    shots: tuple[int, ...] = (32, 128)


TASKS = {
    **{name: Rows(1200, "test", 300) for name in ("subj", "mpqa", "cr", "trec", "agnews")},
    "sst2": Rows(1200, "dev", 300),
    "mr": Rows(600, "test", 200),
    "rte": Rows(400, "dev", 150),
    "cb": Rows(250, "dev_subsample", 56, (32,)),
    "dbpedia": Rows(2296, "test", 140),
}
INTENTS = {"hwu64": (5,), "banking50": (10, 32)}  # The rows per class to fit.
OUT_OF_SCOPE = {"banking50": ("ood-oos", "id-oos")}
NOVELTY_SHOTS = (20, 128)


class Data(NamedTuple):
    """A pool of train rows and test rows, with the readings of both, the pool's first."""

    task: Task
    pool: list[Example]
    test: list[Example]
    readings: Readings

    @property
    def y_N(self) -> np.ndarray:
        """The class of each row, the pool's first."""
        return np.array([self.task.class_index(row.label) for row in [*self.pool, *self.test]])


class Unit(NamedTuple):
    """What is measured at once: a part of the page on a task, with m train rows per class, drawn by a seed."""

    part: str
    task: str
    m: int
    seed: int


def load(path: pathlib.Path) -> dict[Unit, dict[str, Any]]:
    """Return the records of a file by their units."""
    if not path.exists():
        return {}
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return {Unit(*record["unit"]): record for record in map(json.loads, lines)}


def write(path: pathlib.Path, records: Mapping[Unit, Mapping[str, Any]]) -> None:
    """Write the records, sorted; the same records give the same bytes."""
    pack_records.write_lines(path, (records[unit] for unit in sorted(records)))


def units(part: str, names: Sequence[str], seeds: int) -> Iterator[Unit]:
    """Yield the units of a part, the first seed of every task first."""
    for seed in range(1, seeds + 1):
        for name in names:
            for m in _shots(part, name):
                yield Unit(part, name, m, seed)


def _shots(part: str, name: str) -> tuple[int, ...]:
    """Return the numbers of train rows per class of a part's units."""
    if part == "promises":
        return INTENTS[name] if name in INTENTS else TASKS[name].shots
    if part == "planted":
        return (PLANTED_ROWS // tasks.get(name).num_classes,)
    return {"novelty": NOVELTY_SHOTS, "labels": STEPS[-1:]}[part]


def load_data(model: kp.LanguageModel, data_dir: pathlib.Path, name: str) -> Data:
    """Return the rows of a task; always the same ones."""
    if name in INTENTS:
        task, pool, test = _load_intents(data_dir / name)
    else:
        rng = np.random.default_rng(0)
        task = tasks.get(name)
        counts = {"train": TASKS[name].pool, TASKS[name].split: TASKS[name].test}
        loaded = {split: tasks.load_rows(task, split, data_dir=str(data_dir)) for split in counts}
        pool, test = (
            [loaded[split][row] for row in rng.permutation(len(loaded[split]))[:count]]
            for split, count in counts.items()
        )
    return Data(task, pool, test, read(model, task, [*pool, *test]))


def _load_intents(folder: pathlib.Path) -> tuple[Task, list[Example], list[Example]]:
    train = _shuffled(folder / ("train.csv" if (folder / "train.csv").exists() else "train_10.csv"), seed=1)
    train = train.groupby("label").head(MAX_PER_CLASS)
    task = Task.infer(train.text.tolist(), train.label.tolist(), name=folder.name)
    return task, _examples(train), _examples(_shuffled(folder / "test.csv"))


def _shuffled(path: pathlib.Path, seed: int = 0) -> pd.DataFrame:
    frame = pd.read_csv(path, keep_default_na=False)
    return frame.iloc[np.random.default_rng(seed).permutation(len(frame))]


def _examples(frame: pd.DataFrame) -> list[Example]:
    labels = frame.label if "label" in frame else [""] * len(frame)
    return [
        Example({"text": text}, label, row) for row, (text, label) in enumerate(zip(frame.text, labels, strict=True))
    ]


def read(model: kp.LanguageModel, task: Task, rows: Sequence[Example]) -> Readings:
    """Return the readings of rows without demonstrations: the same for every classifier of the task."""
    reader = views.PromptReader(model, task, CACHE, repeated=True)
    num_layers = model.config.num_layers
    experts = [each for kind in expert.KINDS.values() for each in kind.for_views((0,), num_layers, expert.Resources())]
    view = reader.read_after((), rows, expert.activations_by_view(experts, num_layers)[0], task.name)
    return Readings(pool_fitting.joined_texts(task, rows), {0: view})


def fit(model: kp.LanguageModel, task: Task, rows: Sequence[Example], **options: Any) -> Fitted:
    """Return a classifier of a task that reads rows without demonstrations."""
    classifier = kp.AutoClassifier(model, task, demo_shots=0, **options)
    return classifier.fit([row.fields for row in rows], [row.label for row in rows]).fitted_


def measure(fitted: Fitted, readings: Readings, y_Q: np.ndarray) -> Measures:
    """Measure a classifier on texts of classes `y_Q`, numbered as in its task."""
    p_QC = _probabilities(fitted, readings)
    return Measures(fitted.task.labels, y_Q, p_QC.argmax(-1), p_QC)


def _probabilities(fitted: Fitted, readings: Readings) -> np.ndarray:
    """Return the probabilities of the classes [Q, C], in the order of the task."""
    assert fitted.pool
    return fitted.pool.probabilities(readings)


def measure_promises(model: kp.LanguageModel, data: Data, unit: Unit) -> dict[str, Any]:
    """Fit rows drawn at random from the pool; measure promises on rows that were not drawn, and on test rows."""
    order = np.random.default_rng(unit.seed).permutation(len(data.pool))
    count = unit.m * data.task.num_classes
    fitted = fit(model, data.task, [data.pool[row] for row in order[:count]])
    texts = {
        "rest": order[count:],
        "test": np.arange(len(data.pool), len(data.y_N)),
    }
    thresholds = [_threshold(fitted, promise) for promise in PROMISES]
    choice = fitted.content.choice
    assert choice
    return {
        "train_rows": count,
        "estimate": choice.estimate.accuracy if choice.estimate else None,
        **{
            name: _describe(measure(fitted, data.readings.take(rows), data.y_N[rows]), thresholds)
            for name, rows in texts.items()
        },
    }


def _threshold(fitted: Fitted, promise: float) -> float | None:
    """Return the probability from which on `predict --max_error` answers; None if it cannot promise this."""
    try:
        return selective.threshold(*fitted.held_out(), promise)
    except errors.UserError:
        return None


def _describe(measured: Measures, thresholds: Sequence[float | None]) -> dict[str, Any]:
    """Return measures of texts; shares are from 0 to 1.

    `promises` has a row for each promise: how many texts are answered, how many of them wrongly, and how many the best
    threshold for these very texts would answer. The first two are None if nothing can be promised.
    """
    right_Q = measured.y_Q == measured.predicted_Q
    _, rows_T, wrong_T = selective.curve(measured.confidence_Q, right_Q)
    rows = []
    for promise, threshold in zip(PROMISES, thresholds, strict=True):
        ideal = rows_T[wrong_T <= promise * rows_T].max(initial=0)
        counts: list[int | None] = [None, None]
        if threshold is not None:
            answered_Q = measured.confidence_Q >= threshold
            counts = [int(answered_Q.sum()), int((answered_Q & ~right_Q).sum())]
        rows.append([*counts, int(ideal)])
    return {
        "rows": len(right_Q),
        "right": int(right_Q.sum()),
        "calibration_error": round(measured.overall["expected_calibration_error"], 5),
        "promises": rows,
    }


def measure_novelty(model: kp.LanguageModel, data: Data, unit: Unit, data_dir: pathlib.Path) -> dict[str, Any]:
    """Fit the first m rows of each class, and tell test rows from texts out of scope as `evaluate` does."""
    pool = pd.DataFrame({"row": data.pool, "label": [row.label for row in data.pool]})
    fitted = fit(model, data.task, pool.groupby("label").head(unit.m).row.tolist())
    measured = evaluate_job.measure(fitted, data.test, CACHE)
    found = {}
    for name in OUT_OF_SCOPE[unit.task]:
        others = _examples(_shuffled(data_dir / unit.task / f"{name}.csv"))
        scopes = [evaluate_job.measure_scope(fitted, measured, others, level, CACHE) for level in REJECTED]
        found[name] = [{key: round(value, 5) for key, value in scope.items()} for scope in scopes]
    return {"test_rows": len(data.test), "accuracy": measured.overall["accuracy"], **found}


def measure_labels(model: kp.LanguageModel, data: Data, unit: Unit) -> dict[str, Any]:
    """Label rows by the rule of `look` in steps, and as many at random; return the accuracies on other rows."""
    num_classes = data.task.num_classes
    order = np.random.default_rng(unit.seed).permutation(len(data.pool))
    candidates, test = np.split(order, [int(CANDIDATES * len(order))])

    def fit_rows(rows: np.ndarray) -> tuple[Fitted, float]:
        fitted = fit(model, data.task, [data.pool[row] for row in rows], experts=LABEL_EXPERTS)
        measured = measure(fitted, data.readings.take(test), data.y_N[test])
        return fitted, round(measured.overall["accuracy"], 5)

    labelled = candidates[: STEPS[0] * num_classes]
    fitted, accuracy = fit_rows(labelled)
    accuracies = [accuracy]
    for step in STEPS[1:]:
        rest = np.setdiff1d(candidates, labelled)
        readings = data.readings.take(rest)
        count = step * num_classes - len(labelled)
        chosen = label_table.order_by_value(fitted, readings, _probabilities(fitted, readings), count)
        labelled = np.append(labelled, rest[chosen])
        fitted, accuracy = fit_rows(labelled)
        accuracies.append(accuracy)
    _, at_random = fit_rows(candidates[: STEPS[-1] * num_classes])
    return {"steps": STEPS, "test_rows": len(test), "accuracies": accuracies, "at_random": at_random}


def measure_planted(model: kp.LanguageModel, data: Data, unit: Unit) -> dict[str, Any]:
    """Give a few rows drawn at random a wrong label; return the ranks of these rows, from 0, among suspects.

    `look` lists suspects in the order `look`. Cleanlab's default score, `self_confidence`, is the probability of the
    label; the probabilities are the same.
    """
    rng = np.random.default_rng(unit.seed)
    drawn = rng.permutation(len(data.pool))[: unit.m * data.task.num_classes]
    rows = [data.pool[row] for row in drawn]
    planted = rng.permutation(len(rows))[:NUM_PLANTED]
    for index in planted:
        others = [label for label in data.task.labels if label != rows[index].label]
        rows[index] = dataclasses.replace(rows[index], label=others[rng.integers(len(others))])
    fitted = fit(model, data.task, rows)
    _, shares_NC = fitted.left_out()
    y_N = fitted.content.y_N
    own_N = shares_NC[np.arange(len(rows)), y_N]
    near_N0 = np.zeros((len(rows), 0), int)  # Neighbours do not change the order.
    orders = {
        "look": label_table.labels_by_probability(y_N, shares_NC, near_N0).index,
        "self_confidence": np.argsort(own_N, kind="stable"),
    }
    ranks = {name: np.flatnonzero(np.isin(order, planted)).tolist() for name, order in orders.items()}
    return {"train_rows": len(rows), "ranks": ranks}


def run(options: argparse.Namespace) -> None:
    """Measure what the file of records lacks."""
    model = kp.demo_model(options.model)
    data_of = functools.cache(functools.partial(load_data, model, options.data_dir))
    measures: dict[str, Callable[..., dict[str, Any]]] = {
        "promises": measure_promises,
        "novelty": functools.partial(measure_novelty, data_dir=options.data_dir),
        "labels": measure_labels,
        "planted": measure_planted,
    }
    records = load(options.records)
    for unit in units(options.part, options.tasks.split(","), options.seeds):
        if unit not in records:
            found = measures[unit.part](model, data_of(unit.task), unit)
            records[unit] = {"unit": unit, "model": model.name, **found}
            write(options.records, records)
            print(json.dumps(records[unit]), flush=True)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("promises", "novelty", "labels", "planted"))
    parser.add_argument("--data_dir", type=pathlib.Path, required=True, help="the folder of the tasks' folders")
    parser.add_argument("--tasks", required=True, help=f"of {', '.join([*TASKS, *INTENTS])}, separated by commas")
    parser.add_argument("--seeds", type=int, default=1, help="the number of draws from the pool")
    parser.add_argument("--model", default="smollm2", help="a model that `knnprompt_jax.demo_model` loads")
    parser.add_argument("--records", type=pathlib.Path, default=RECORDS, help="the file of records")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(parse(sys.argv[1:]))
