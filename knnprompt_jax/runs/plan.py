"""Runs, and groups of runs that share their prompts. Everything here is known before any weight is loaded."""

import collections
import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from knnprompt_jax import lm, parallel
from knnprompt_jax import options as options_lib
from knnprompt_jax.methods import method as method_lib
from knnprompt_jax.models import registry as models
from knnprompt_jax.prompts import layout
from knnprompt_jax.settings import classifiers
from knnprompt_jax.tasks.task import Example


@dataclasses.dataclass(frozen=True)
class Run:
    """A method with its options on a problem, with a model.

    Attributes:
        name: the requested method, if a grid runs another one in its place.
        experiment: the grid of the run; "" without one.
        cell: the position of the run on those axes of the grid that are not fields of a record.
        note: a remark for the record.
        source: the options that the rows came from. `key` covers the rows by content instead.
    """

    method: method_lib.Method
    options: options_lib.Options
    problem: method_lib.Problem
    model: lm.LanguageModel
    store_options: classifiers.StoreOptions
    name: str = ""
    experiment: str = ""
    cell: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    note: str = ""
    source: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.method.name)

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that can change the outcome, as JSON values: rows, task, model, method and options, by content.

        Batch, packing and, in float32, devices may change the last digits of a state and are not part of it.
        """
        split = self.problem.split
        method_model = self.method.model_name(self.options)
        return {
            "task": self.problem.digest,  # Of the task and all rows.
            "shots": split.shots,
            "demo_shots": split.demo_shots,
            "seed": split.seed,
            "truncation": self.problem.truncation,
            "label_token": self.problem.label_token,
            "model": self.model.fingerprint,
            "context": self.model.context,
            "dtype": self.model.dtype,
            "deterministic": self.model.deterministic,
            # Other dtypes depend on the platform: CPUs compute in float32.
            **({"platform": parallel.platform()} if self.model.dtype != "float32" else {}),
            **({"model_shards": self.model.mesh.shape[parallel.MODEL]} if self.model.deterministic else {}),
            # The code that runs; a preset differs by its options only.
            "runs": self.method.entry.base + self.method.code_suffix,
            "options": self.options.to_dict(),
            "model_of_method": lm.find_fingerprint(method_model, self.model.needs_weights) if method_model else "",
            "datastore": self.store_options.to_dict(),
        }

    @functools.cached_property
    def key(self) -> str:
        """SHA-256 of the identity: runs that can give different results have different keys."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True, default=str).encode()).hexdigest()

    @functools.cached_property
    def file_name(self) -> str:
        """The name of the record's file: readable parts, then a digest of the key, the name and the grid cell."""
        content = json.dumps([self.key, self.name, self.experiment, dict(self.cell)], sort_keys=True, default=str)
        digest = hashlib.sha256(content.encode()).hexdigest()[:16]
        split = self.problem.split
        return (
            f"{self.problem.task.name}-{self.model.short_name}-{self.name}-m{split.shots}-d{split.demo_shots}"
            f"-seed{split.seed}-{digest}.json"
        )


@dataclasses.dataclass(frozen=True)
class RunGroup:
    """Runs with the same task, model and demonstrations. One pass of the model reads each of their prompts once."""

    model: lm.LanguageModel
    runs: tuple[Run, ...]

    @property
    def demonstrations(self) -> Sequence[Example]:
        return self.runs[0].problem.split.demonstrations

    @property
    def title(self) -> str:
        """The model, the task, the seeds and the number of demonstrations, for the progress bar."""
        seeds = sorted({run.problem.split.seed for run in self.runs})
        name = "seed" if len(seeds) == 1 else "seeds"
        listed = ",".join(map(str, seeds))
        task = self.runs[0].problem.task.name
        return f"{self.model.short_name} {task} {name} {listed}, {len(self.demonstrations)} demonstrations in all"

    @property
    def packing_key(self) -> tuple[str, int]:
        """Consecutive groups of a model with equal keys share their pack shapes."""
        return self.runs[0].problem.task.name, len(self.demonstrations)

    @functools.cached_property
    def examples(self) -> dict[str, Example]:
        """The examples of all shared prompts, anchors included, by their text; one for each distinct text."""
        # Hundreds of runs share a problem.
        sets = {(id(run.problem), needed): (run.problem, needed) for run in self.runs for needed in run.method.needs}
        examples: dict[str, Example] = {}
        for problem, prompt_set in sets.values():
            examples |= {problem.task.render(example): example for example in prompt_set.examples_of(problem)}
        return examples

    @functools.cached_property
    def cost(self) -> method_lib.Cost:
        """Number of prompts, and their tokens to within a few per prompt.

        The prefix counts once; a truncated prompt counts `context` tokens.
        """
        context = self.model.context
        lengths_N = self.model.count_tokens(list(self.examples))
        counter = method_lib.TokenCounter(self.model.count_tokens, context)
        prefix = counter.demonstration_tokens(self.runs[0].problem.task, self.demonstrations)
        fits_N = prefix + lengths_N <= context
        prompts = len(lengths_N)
        tokens = int(lengths_N[fits_N].sum()) + context * int((~fits_N).sum())
        if fits_N.any():
            tokens += prefix
        for run in self.runs:
            own_prompts, own_tokens = run.method.cost(run.problem, counter, run.options)
            prompts += own_prompts
            tokens += own_tokens
        return method_lib.Cost(prompts, int(tokens))

    @property
    def work(self) -> float:
        """Parameters × tokens."""
        return self.cost.tokens * float(models.num_parameters(self.model.config))

    def build_prompts(self) -> layout.Prompts:
        """Tokenize the shared prompts, in the order of `examples`; raise UserError as `layout.build_prompts`."""
        problem = self.runs[0].problem
        return problem.build_prompts(self.demonstrations, list(self.examples.values()), self.model.context)

    def indices(self, run: Run, prompt_set: method_lib.PromptSet) -> np.ndarray:
        """Return the indices of a run's prompts among the shared prompts."""
        render = run.problem.task.render
        return np.array([self._index_of[render(example)] for example in prompt_set.examples_of(run.problem)], int)

    @functools.cached_property
    def _index_of(self) -> dict[str, int]:
        return {text: index for index, text in enumerate(self.examples)}


def group_runs(model: lm.LanguageModel, runs: Iterable[Run]) -> list[RunGroup]:
    """Group the runs of one task and model by their demonstrations, groups with fewer demonstrations first."""
    members_by_rows = collections.defaultdict(list)
    for run in runs:
        key = tuple(example.row for example in run.problem.split.demonstrations)
        members_by_rows[key].append(run)
    groups = [RunGroup(model, tuple(members)) for members in members_by_rows.values()]
    return sorted(groups, key=lambda group: len(group.demonstrations))
