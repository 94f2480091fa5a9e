"""Records of several models, tasks and m: cells that all compared methods have, with accuracies and differences."""

import collections
import statistics
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from knnprompt_jax.common import errors
from knnprompt_jax.report import names, published, results
from knnprompt_jax.report import records as records_lib
from knnprompt_jax.study import paper_experiment
from tools import intervals

MOST_COMMON = "most_common"  # A pseudo-method: the most common class of the test rows.
CALIBRATIONS = (
    "contextual_calibration",
    "domain_context_calibration",
    "batch_calibration",
    "proca",
    "linc",
    "supervised_calibration",
)
ORDER = (
    *("encoder_probe", "encoder_knn", "icl", *CALIBRATIONS),
    *("knn", "knn_reverse_kl", "knn_kl_labels", "knn_l2", "knn_centroid", "knn_centroid_geometric"),
    *("hidden_centroids", "linear_probe", "linear_probe_log_p"),
)
APART = "trec"  # Six classes of unequal size: most differences are several times those of binary tasks.
CAPPED = "cr"  # Too few negative train rows beyond m = 256.
_MIN_SEEDS = 2

Cells = Mapping[str, list[int]]  # Tasks, each with its seeds.


class Model(NamedTuple):
    """A language model's title, what it was trained for, the quantisation of its file and its size."""

    title: str
    kind: str
    quantisation: str
    parameters: int

    @property
    def short(self) -> str:
        """The title for the heads of tables."""
        return self.title.removesuffix("-Instruct")

    @property
    def brief(self) -> str:
        """A name for long tables: SmolLM2, Gemma, Qwen 0.5B, Qwen 1.5B."""
        return self.short.replace("2.5-Coder-", " ").removesuffix("-135M").removesuffix(" 3 270M")


MODELS = {
    "smollm2": Model("SmolLM2-135M-Instruct", "instruction-tuned", "Q4_1", 134_515_008),
    "gemma-3-270m": Model("Gemma 3 270M", "pretrained", "Q4_K_M", 268_098_176),
    "qwen2.5-coder-0.5b": Model("Qwen2.5-Coder-0.5B-Instruct", "instruction-tuned", "Q4_K_M", 494_032_768),
    "qwen2.5-coder-1.5b": Model("Qwen2.5-Coder-1.5B-Instruct", "instruction-tuned", "Q4_K_M", 1_543_714_304),
}


def model_of(record: records_lib.Record) -> str:
    """Return the key of a record's model in MODELS."""
    return published.short_name(record.model).removesuffix(".gguf")


class Scale:
    """Records of several models, tasks and m, compared over the cells that all compared methods have.

    Records that re-use the result of in-context learning, for lack of anchors, are left out.

    Attributes:
        methods: all methods.
        compared: the methods of each model that have every cell, in the order of tables.
        models: the models with at least half of the tasks that any has, small ones first; others are not shown.
        shots: the numbers m of train rows per class for which a model has cells.
    """

    def __init__(self, records: Iterable[records_lib.Record]):
        self.records = [record for record in records if record.note != paper_experiment.REUSED]
        (self._regime,) = {record.cell.get("regime", results.FULL) for record in self.records}
        self._most_common = _most_common_rows(self.records)
        self._right = self._right_by_run()
        self._between: dict[tuple, intervals.Difference] = {}
        self.methods = {record.method for record in self.records}
        methods: dict[str, set[str]] = {}
        for record in self.records:
            methods.setdefault(model_of(record), set()).add(record.method)
        self.compared = {model: [name for name in ORDER if name in own] for model, own in methods.items()}
        shots = sorted({record.shots for record in self.records})
        self.shots = [m for m in shots if any(self.cells([model], m) for model in methods)]
        models = sorted(methods, key=lambda name: MODELS[name].parameters)
        num_tasks = {model: max((len(self.cells([model], m)) for m in self.shots), default=0) for model in models}
        most = max(num_tasks.values())
        self.models = [model for model in models if num_tasks[model] and 2 * num_tasks[model] >= most]

    def _right_by_run(self) -> dict[tuple, dict[int, np.ndarray]]:
        """Return which predictions are right by (model, method, m, task) and seed."""
        found: dict[tuple, dict[int, np.ndarray]] = {}
        for record in self.records:
            by_seed = found.setdefault(self._key(model_of(record), record.method, record.shots, record.task), {})
            if record.seed in by_seed:
                raise errors.UserError(f"{record.file_name}: an earlier record is of the same run")
            by_seed[record.seed] = intervals.right_rows(record)
        return found

    def _key(self, model: str, method: str, m: int, task: str) -> tuple:
        """Return the key of a method's records.

        With M_T demonstrations, methods without anchors have the same records at every m.
        """
        return model, method, results.m_of(method, self._regime, m), task

    def cells(self, models: Iterable[str], m: int) -> dict[str, list[int]]:
        """Return the tasks, each with its seeds, that every method of all these models has at m."""
        found = {}
        compared = [(model, method) for model in models for method in self.compared[model]]
        for task in names.ordered("task", self._most_common):
            seeds = set.intersection(*({*self.seeds(*each, m, task)} for each in compared))
            if len(seeds) >= _MIN_SEEDS:
                found[task] = sorted(seeds)
        return found

    def shared(self, model: str, m: int, task: str = "") -> dict[str, list[int]]:
        """Return the tasks except APART that all models with cells at m have, each with this model's seeds.

        With `task`, return this task if the model has it.
        """
        own = self.cells([model], m)
        if task:
            return {name: seeds for name, seeds in own.items() if name == task}
        with_cells = [found for other in self.models if (found := self.cells([other], m))]
        return {
            name: seeds for name, seeds in own.items() if name != APART and all(name in found for found in with_cells)
        }

    def has(self, model: str, method: str, m: int, cells: Cells) -> bool:
        """Return whether the method has all of these tasks and seeds."""
        return method == MOST_COMMON or all(
            {*seeds} <= {*self.seeds(model, method, m, task)} for task, seeds in cells.items()
        )

    def complete(self, models: Iterable[str]) -> list[int]:
        """Return the numbers m at which these models share a cell."""
        models = list(models)
        return [m for m in self.shots if self.cells(models, m)]

    def seeds(self, model: str, method: str, m: int, task: str) -> list[int]:
        """Return the seeds of a method's records."""
        return sorted(self._right.get(self._key(model, method, m, task), ()))

    def right(self, model: str, method: str, m: int, task: str, seeds: Collection[int]) -> np.ndarray:
        """Return which predictions are right, [seeds, rows] in 0 and 1."""
        if method == MOST_COMMON:
            return np.stack([self._most_common[task]] * len(seeds))
        found = self._right[self._key(model, method, m, task)]
        return np.stack([found[seed] for seed in seeds])

    def accuracy(self, model: str, method: str, m: int, task: str, seeds: Collection[int]) -> results.Score:
        """Return the accuracy in %, over seeds."""
        return results.Score.of(100 * self.right(model, method, m, task, seeds).mean(1))

    def mean(self, model: str, method: str, m: int, cells: Cells) -> float:
        """Return the mean over tasks of the accuracies in %."""
        return statistics.fmean(self.accuracy(model, method, m, task, seeds).mean for task, seeds in cells.items())

    def means(self, model: str, method: str, tasks: Collection[str] = ()) -> dict[float, float]:
        """Return the method's mean accuracy in % at each m at which it has all tasks: those of `shared`, or these."""
        found = {}
        for m in self.complete([model]):
            cells = {task: seeds for task, seeds in self.shared(model, m).items() if task in tasks or not tasks}
            if cells and self.has(model, method, m, cells):
                found[m] = self.mean(model, method, m, cells)
        return found

    def difference(
        self, ours: tuple[str, str, int], theirs: tuple[str, str, int], cells: Cells
    ) -> intervals.Difference:
        """Return the difference between two (model, method, m) over the cells, paired by seed and row."""
        return intervals.bootstrap(
            [self.right(*ours, task, seeds) - self.right(*theirs, task, seeds) for task, seeds in cells.items()]
        )

    def between(self, model: str, ours: str, theirs: str, m: int, task: str = "") -> intervals.Difference | None:
        """Return the difference between two methods of a model over `shared`, if both have it."""
        key = (model, ours, theirs, m, task)
        cells = self.shared(model, m, task)
        has_both = all(self.has(model, name, m, cells) for name in (ours, theirs))
        if key not in self._between and cells and has_both:
            self._between[key] = self.difference((model, ours, m), (model, theirs, m), cells)
        return self._between.get(key)

    def growth(
        self, model: str, method: str, low: int, high: int, task: str = "", without: str = ""
    ) -> intervals.Difference | None:
        """Return the difference between two m over the tasks and seeds of `shared` at both, if there are any."""
        at_high = self.shared(model, high, task)
        cells = {}
        for name, seeds in self.shared(model, low, task).items():
            common = {*seeds} & {*at_high.get(name, ())}
            if name != without and len(common) >= _MIN_SEEDS:
                cells[name] = sorted(common)
        return self.difference((model, method, high), (model, method, low), cells) if cells else None

    def name(self, method: str) -> str:
        """Return a method's name with its direction of KL."""
        if method == MOST_COMMON:
            return names.MOST_COMMON
        first = next(each for each in self.records if each.method == method)
        return ", ".join([names.method(method), *names.directions([first])])

    def best_calibration(self, model: str, m: int, cells: Cells) -> str:
        """Return the calibration with the highest mean on these test rows."""
        own = [name for name in CALIBRATIONS if name in self.compared[model]]
        return max(own, key=lambda name: self.mean(model, name, m, cells))

    def at_every_m(self, model: str) -> dict[int, dict[str, list[int]]]:
        """Return the cells of `shared` for each m, with the tasks that every m has, without CAPPED."""
        cells = {m: self.shared(model, m) for m in self.complete([model])}
        tasks = [name for name in min(cells.values(), key=len) if all(name in own for own in cells.values())]
        tasks = [name for name in tasks if name != CAPPED]
        return {m: {task: own[task] for task in tasks} for m, own in cells.items()}

    def tasks(self) -> str:
        """List the tasks of `shared` at the largest m that all models have, with the numbers of seeds."""
        m = self.complete(self.models)[-1]
        cells = {model: self.shared(model, m) for model in self.models}
        counts = {model: min(map(len, found.values())) for model, found in cells.items()}
        most = max(counts.values())
        fewer = ", ".join(f"{MODELS[model].short}: {count}" for model, count in counts.items() if count < most)
        tasks = ", ".join(map(names.task, cells[self.models[0]]))
        return f"{tasks}, with {most} seeds" + (f" ({fewer})" if fewer else "")

    def test_rows(self) -> str:
        """Describe the numbers of test rows of the tasks."""
        counts = {record.task: len(record.true) for record in self.records}
        most = max(counts.values())
        fewer = ", ".join(f"{names.task(task)}: {counts[task]}" for task in sorted(counts) if counts[task] < most)
        return f"{most} test rows each" + (f" ({fewer})" if fewer else "")

    def m_t(self, tasks: Collection[str] = ()) -> str:
        """List these tasks, or all, each with kNN Prompting's demonstrations per class with every model."""
        found = collections.defaultdict(set)
        for record in self.records:
            if record.method == "knn" and (record.task in tasks or not tasks):
                found[record.task].add(record.demo_shots)
        ordered = names.ordered("task", found)
        return ", ".join(f"{names.task(task)} {' or '.join(map(str, sorted(found[task])))}" for task in ordered)

    def truncated(self) -> str:
        """Describe how many prompts were truncated; they count once per method."""
        num_truncated = sum(record.truncated_prompts for record in self.records)
        num_prompts = sum(record.prompts for record in self.records)
        return f"{num_truncated:,} of {num_prompts:,} were truncated"

    def differences(self, model: str, ours: str, theirs: str, task: str = "") -> dict[int, intervals.Difference]:
        """Return the differences between two methods at each m, as `between` does."""
        found = {m: self.between(model, ours, theirs, m, task) for m in self.complete([model])}
        return {m: difference for m, difference in found.items() if difference}

    def of(self, methods: Collection[str]) -> "Scale":
        """Return the records of these methods, which may share more cells than all methods do."""
        return Scale([record for record in self.records if record.method in methods])


def _most_common_rows(records: Iterable[records_lib.Record]) -> dict[str, np.ndarray]:
    """Return which test rows of each task have its most common class, [rows] in 0 and 1.

    Raises:
        UserError: two records of a task have different test rows.
    """
    true: dict[str, tuple[str, ...]] = {}
    for record in records:
        if true.setdefault(record.task, record.true) != record.true:
            raise errors.UserError(f"{record.file_name}: other test rows than in earlier records of {record.task}")
    found = {}
    for task, labels in true.items():
        (most_common, _), *_ = collections.Counter(labels).most_common(1)
        found[task] = (np.array(labels) == most_common).astype(np.int8)
    return found


def verdict(differences: Mapping[int, intervals.Difference]) -> str:
    """Say whether, or at which m, differences are above zero (yes) or below (no); a dash without differences."""
    if not differences:
        return "–"
    texts = []
    for sign, word in ((1, "yes"), (-1, "no")):
        shots = [str(m) for m, difference in differences.items() if difference.sign == sign]
        if len(shots) == len(differences):
            texts.append(word)
        elif shots:
            texts.append(f"{word} (m = {', '.join(shots)})")
    return "; ".join(texts) or "?"
