"""Records of several models, tasks and m: the cells that all compared methods have, their accuracies and differences."""

import collections
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.paper import cells as paper_cells
from knnprompt_jax.report import names, published, results
from knnprompt_jax.runs import records as records_lib
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
    *("tfidf", "encoder_probe", "encoder_knn", "icl", *CALIBRATIONS),
    *("knn", "knn_reverse_kl", "knn_kl_labels", "knn_l2", "knn_centroid", "knn_centroid_geometric"),
    *("hidden_centroids", "linear_probe", "linear_probe_log_p"),
)
APART = "trec"  # Six classes of unequal size: most differences are several times those of binary tasks.
CAPPED = "cr"  # Too few negative train rows beyond m = 256.
_FEWEST_SEEDS = 2


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
    return published.model_of(record.model).removesuffix(".gguf")


class Scale:
    """Records of several models, tasks and m, compared over the cells that all compared methods have.

    Records that re-use the result of in-context learning, for lack of anchors, are left out.

    Attributes:
      methods: all methods.
      rows: the methods of each model that every shown cell has, in the order of tables.
      models: the models with at least half of the tasks that any has, small ones first; others are not shown.
      shots: the numbers m of train rows per class for which a model has cells.
    """

    def __init__(self, records: Iterable[records_lib.Record]):
        self.records = records = [record for record in records if record.note != paper_cells.REUSED]
        (regime,) = {record.cell.get("regime", results.FULL) for record in records}
        self._is_few_shot = regime == results.FEW_SHOT
        self._right: dict[tuple, dict[int, np.ndarray]] = collections.defaultdict(dict)
        self._between: dict[tuple, intervals.Difference] = {}
        true: dict[str, np.ndarray] = {}
        self.methods = {record.method for record in records}
        shots, methods = set(), collections.defaultdict(set)
        for record in records:
            model, true_Q = model_of(record), np.array(record.true)
            if not np.array_equal(true_Q, true.setdefault(record.task, true_Q)):
                raise errors.UserError(f"{record.file_name}: other test rows than in earlier records of {record.task}")
            by_seed = self._right[self._place(model, record.method, record.shots, record.task)]
            if record.seed in by_seed:
                raise errors.UserError(f"{record.file_name}: an earlier record has the same place")
            by_seed[record.seed] = (np.array(record.predicted) == true_Q).astype(np.int8)
            shots.add(record.shots)
            methods[model].add(record.method)
        self._most_common = {
            task: (true_Q == collections.Counter(true_Q.tolist()).most_common(1)[0][0]).astype(np.int8)
            for task, true_Q in true.items()
        }
        self.rows = {model: [MOST_COMMON, *(name for name in ORDER if name in own)] for model, own in methods.items()}
        self._others = {model: sorted(own - {*ORDER}) for model, own in methods.items()}
        self.shots = [m for m in sorted(shots) if any(self.cells([model], m) for model in methods)]
        models = sorted(methods, key=lambda name: MODELS[name].parameters)
        tasks = {model: max((len(self.cells([model], m)) for m in self.shots), default=0) for model in models}
        self.models = [model for model in models if tasks[model] and 2 * tasks[model] >= max(tasks.values())]

    def _place(self, model: str, method: str, m: int, task: str) -> tuple:
        """Return the key of a place; with M_T demonstrations, methods that see no other rows have the same at every m."""
        sees_m_t = not self._is_few_shot and results.rows_used(method) == "demonstrations"
        return model, method, 0 if sees_m_t else m, task

    def cells(self, models: Iterable[str], m: int) -> dict[str, list[int]]:
        """Return the tasks, each with its seeds, that every method of all these models has at m."""
        found = {}
        compared = [(model, method) for model in models for method in self.rows[model][1:]]
        for task in names.ordered("task", self._most_common):
            seeds = set.intersection(*({*self.seeds(*each, m, task)} for each in compared))
            if len(seeds) >= _FEWEST_SEEDS:
                found[task] = sorted(seeds)
        return found

    def shared(self, model: str, m: int, task: str = "") -> dict[str, list[int]]:
        """Return the tasks without APART that all models with cells at m have, each with this model's seeds; or `task` alone."""
        own = self.cells([model], m)
        if task:
            return {name: seeds for name, seeds in own.items() if name == task}
        others = [found for other in self.models if (found := self.cells([other], m))]
        return {name: own[name] for name in own if name != APART and all(name in each for each in others)}

    def common(self, models: Iterable[str], shots: Sequence[int]) -> dict[str, list[int]]:
        """Return the tasks, each with its seeds, that these models have at all of these m."""
        first, *further = (self.cells(models, m) for m in shots)
        shared = {
            task: {*seeds}.intersection(*(each.get(task, ()) for each in further)) for task, seeds in first.items()
        }
        return {task: sorted(seeds) for task, seeds in shared.items() if len(seeds) >= _FEWEST_SEEDS}

    def shown(self, model: str, m: int) -> list[str]:
        """Return the rows of the model and its other methods that have all of its cells at m."""
        cells = self.cells([model], m)
        return [*self.rows[model], *(name for name in self._others[model] if self.has(model, name, m, cells))]

    def has(self, model: str, method: str, m: int, cells: Mapping[str, list[int]]) -> bool:
        """Return whether the method has all of these tasks and seeds."""
        return method == MOST_COMMON or all(
            {*seeds} <= {*self.seeds(model, method, m, task)} for task, seeds in cells.items()
        )

    def complete(self, models: Iterable[str]) -> list[int]:
        """Return the numbers m at which these models share a cell."""
        models = list(models)
        return [m for m in self.shots if self.cells(models, m)]

    def seeds(self, model: str, method: str, m: int, task: str) -> list[int]:
        """Return the seeds of a method's records at this place."""
        return sorted(self._right.get(self._place(model, method, m, task), ()))

    def right(self, model: str, method: str, m: int, task: str, seeds: Collection[int]) -> np.ndarray:
        """Return which predictions are right, [seeds, rows] in 0 and 1."""
        if method == MOST_COMMON:
            return np.stack([self._most_common[task]] * len(seeds))
        found = self._right[self._place(model, method, m, task)]
        return np.stack([found[seed] for seed in seeds])

    def accuracy(self, model: str, method: str, m: int, task: str, seeds: Collection[int]) -> results.Score:
        """Return the accuracy in %, over seeds."""
        return results.Score.of(100 * self.right(model, method, m, task, seeds).mean(1))

    def mean(self, model: str, method: str, m: int, cells: Mapping[str, list[int]]) -> float:
        """Return the mean over tasks of the accuracies in %."""
        return statistics.fmean(self.accuracy(model, method, m, task, seeds).mean for task, seeds in cells.items())

    def means(self, model: str, method: str, tasks: Collection[str] = ()) -> dict[float, float]:
        """Return the method's mean accuracy in % over `shared`, or over these tasks, at each m at which it has all of them."""
        found = {}
        for m in self.complete([model]):
            cells = {task: seeds for task, seeds in self.shared(model, m).items() if task in tasks or not tasks}
            if cells and self.has(model, method, m, cells):
                found[m] = self.mean(model, method, m, cells)
        return found

    def difference(
        self, ours: tuple[str, str, int], theirs: tuple[str, str, int], cells: Mapping[str, list[int]]
    ) -> intervals.Difference:
        """Return the difference between two (model, method, m) over the cells, paired by seed and row."""
        return intervals.bootstrap(
            [self.right(*ours, task, seeds) - self.right(*theirs, task, seeds) for task, seeds in cells.items()]
        )

    def between(self, model: str, ours: str, theirs: str, m: int, task: str = "") -> intervals.Difference | None:
        """Return the difference between two methods of a model over `shared`, if both have it; several tables show it."""
        place, cells = (model, ours, theirs, m, task), self.shared(model, m, task)
        if place not in self._between and cells and all(self.has(model, name, m, cells) for name in (ours, theirs)):
            self._between[place] = self.difference((model, ours, m), (model, theirs, m), cells)
        return self._between.get(place)

    def growth(
        self, model: str, method: str, low: int, high: int, task: str = "", without: str = ""
    ) -> intervals.Difference | None:
        """Return the difference between two m over the tasks of `shared` at both, if there are any."""
        tasks = self.shared(model, low, task).keys() & self.shared(model, high, task).keys() - {without}
        cells = {name: seeds for name, seeds in self.common([model], (low, high)).items() if name in tasks}
        return self.difference((model, method, high), (model, method, low), cells) if cells else None

    def name(self, method: str) -> str:
        """Return a method's name with its direction of KL."""
        if method == MOST_COMMON:
            return names.MOST_COMMON
        first = next(each for each in self.records if each.method == method)
        return ", ".join([names.method(method), *names.directions([first])])

    def best_calibration(self, model: str, m: int, cells: Mapping[str, list[int]]) -> str:
        """Return the calibration with the highest mean on these test rows."""
        own = [name for name in CALIBRATIONS if name in self.rows[model]]
        return max(own, key=lambda name: self.mean(model, name, m, cells))

    def at_every_m(self, model: str) -> dict[int, dict[str, list[int]]]:
        """Return the cells of `shared` for each m, with the tasks that every m has, without CAPPED."""
        cells = {m: self.shared(model, m) for m in self.complete([model])}
        tasks = [name for name in min(cells.values(), key=len) if all(name in own for own in cells.values())]
        tasks = [name for name in tasks if name != CAPPED]
        return {m: {task: own[task] for task in tasks} for m, own in cells.items()}

    def tasks(self) -> str:
        """List the tasks of `shared` at the largest m that all models have, with the numbers of seeds."""
        cells = {model: self.shared(model, self.complete(self.models)[-1]) for model in self.models}
        counts = {model: min(map(len, found.values())) for model, found in cells.items()}
        most = max(counts.values())
        fewer = ", ".join(f"{MODELS[model].short}: {count}" for model, count in counts.items() if count < most)
        listed = ", ".join(map(names.task, cells[self.models[0]]))
        return f"{listed}, with {most} seeds{f' ({fewer})' if fewer else ''}"

    def test_rows(self, tasks: Collection[str] = ()) -> str:
        """Describe the numbers of test rows of these tasks, or of all."""
        counts = {record.task: len(record.true) for record in self.records if record.task in tasks or not tasks}
        return _most("{} test rows each", counts)

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
        cut, prompts = (sum(getattr(each, name) for each in self.records) for name in ("truncated_prompts", "prompts"))
        return f"{cut:,} of {prompts:,} were truncated"

    def differences(
        self, model: str, ours: str, theirs: str, shots: Collection[int] = (), task: str = ""
    ) -> dict[int, intervals.Difference]:
        """Return the differences between two methods at each m, or at some of them, as `between` does."""
        shots = [m for m in self.complete([model]) if m in shots or not shots]
        found = {m: self.between(model, ours, theirs, m, task) for m in shots}
        return {m: difference for m, difference in found.items() if difference}

    def of(self, methods: Collection[str]) -> "Scale":
        """Return the records of these methods, which may share more cells than all methods do."""
        return Scale([record for record in self.records if record.method in methods])


def _most(text: str, counts: Mapping[str, int]) -> str:
    """Return the text with the largest count, and the tasks with other counts in brackets."""
    most = max(counts.values())
    fewer = ", ".join(f"{names.task(task)}: {counts[task]}" for task in sorted(counts) if counts[task] < most)
    return text.format(most) + (f" ({fewer})" if fewer else "")
