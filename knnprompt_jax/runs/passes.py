"""What the language model reads together: the runs on a task and model after the same demonstrations."""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from knnprompt_jax import lm, options, parallel
from knnprompt_jax.methods import method as method_lib
from knnprompt_jax.models import registry as models
from knnprompt_jax.prompts import layout, packing
from knnprompt_jax.runs import material, records
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks.task import Example


@dataclasses.dataclass(frozen=True)
class Run:
    """A method with its options on a problem, and the record that it becomes, which lacks the outcome alone."""

    method: method_lib.Method
    settings: options.Options
    problem: method_lib.Problem
    record: records.Record


@dataclasses.dataclass(frozen=True)
class Pass:
    """Runs on the same task and model after the same demonstrations: each prompt of theirs is read once.

    `anchors_are_stored` says that a saved classifier's store stands for the anchors of methods that can search it.
    """

    model: material.Model
    runs: tuple[Run, ...]
    anchors_are_stored: bool = False

    @property
    def demonstrations(self) -> Sequence[Example]:
        return self.runs[0].problem.split.demonstrations

    @property
    def reads_prompts(self) -> bool:
        """Whether any method asks the language model: some train a model of their own instead."""
        return not all(run.method.own_model for run in self.runs)

    @functools.cached_property
    def queries(self) -> dict[str, Example]:
        """The shared prompts: an example for each text. Runs on the same problem ask for the same."""
        asked = {
            (id(run.problem), prompt_set): (run.problem, prompt_set)
            for run in self.runs
            for prompt_set in self.needs(run)
        }
        return {
            problem.task.render(example): example
            for problem, prompt_set in asked.values()
            for example in prompt_set(problem)
        }

    def needs(self, run: Run) -> tuple[method_lib.PromptSet, ...]:
        """The sets of prompts that a run's method has the pass read."""
        stored = self.anchors_are_stored and run.method.searches
        return tuple(needed for needed in run.method.needs if not (stored and needed is method_lib.anchors))

    @functools.cached_property
    def cost(self) -> method_lib.Cost:
        """Prompts and, to within a few per prompt, tokens: a prefix once, or whole contexts where prompts are too long for it."""
        task, model = self.runs[0].problem.task, self.model
        lengths = model.lengths(list(self.queries))
        context = model.config.num_positions
        reader = method_lib.Reader(model.lengths, context)
        prefix = reader.demonstration_tokens(task, self.demonstrations)
        fits = prefix + lengths <= context
        tokens = int(lengths[fits].sum()) + prefix * bool(fits.any()) + context * int((~fits).sum())
        beside = np.array([run.method.cost(run.problem, reader, run.settings) for run in self.runs])
        return method_lib.Cost(len(lengths) + int(beside[:, 0].sum()), tokens + int(beside[:, 1].sum()))

    @property
    def work(self) -> float:
        """What it costs beside other models' passes."""
        return self.cost.tokens * float(models.num_parameters(self.model.config))


def together(model: material.Model, runs: Iterable[Run], anchors_are_stored: bool = False) -> list[Pass]:
    """The runs of one task and model as passes, those with fewer demonstrations first; a run whose method trains a
    model is a pass by itself."""
    groups = collections.defaultdict(list)
    for run in runs:
        split = run.problem.split
        alone = (run.record.name,) if run.method.own_model else ()
        groups[(*(row.row for row in split.demonstrations), *alone)].append(run)
    return [Pass(model, tuple(members), anchors_are_stored) for _, members in sorted(groups.items(), key=_few_first)]


def _few_first(group: tuple[tuple, list[Run]]) -> int:
    return len(group[1][0].problem.split.demonstrations)


@dataclasses.dataclass(frozen=True)
class Reading:
    """A pass with its prompts laid out; `place` is where a query's text stands among them."""

    planned: Pass
    prompts: layout.Prompts
    place: Mapping[str, int]

    def context(
        self,
        run: Run,
        model: lm.LanguageModel | None,
        states: lm.States | None,
        store_options: store_lib.StoreOptions,
        store: store_lib.Store | None,
    ) -> method_lib.Context:
        """What a run's method predicts from; a method that trains a model of its own sees no other."""
        needs = self.planned.needs(run) if states is not None else ()
        needed = {prompt_set: states[self._places(run, prompt_set)] for prompt_set in needs}  # type: ignore[index]
        return method_lib.Context(run.problem, model, needed, store_options, store)  # type: ignore[arg-type]

    def costs(self, run: Run) -> dict[str, int]:
        """Prompts, truncated ones and tokens that a run would have read if it ran alone, passes of its own aside."""
        needed_N = np.zeros(self.prompts.num_prompts, bool)
        for prompt_set in self.planned.needs(run):
            needed_N[self._places(run, prompt_set)] = True
        truncated, tokens = 0, 0
        for number, group in enumerate(self.prompts.groups, 1):
            lengths = [
                len(suffix) for suffix, place in zip(group.suffixes, group.index, strict=True) if needed_N[place]
            ]
            tokens += sum(lengths) + (len(group.prefix_P) if lengths else 0)
            is_truncated = self.prompts.num_truncated > 0 and number == len(self.prompts.groups)
            truncated += len(lengths) if is_truncated else 0
        return {"prompts": int(needed_N.sum()), "truncated_prompts": truncated, "lm_tokens": tokens}

    def _places(self, run: Run, prompt_set: method_lib.PromptSet) -> np.ndarray:
        task = run.problem.task
        return np.array([self.place[task.render(example)] for example in prompt_set(run.problem)], int)


def lay_out(planned: Pass) -> Reading:
    """Tokenizes the prompts of a pass; raises UserError as `layout.lay_out`."""
    problem, queries = planned.runs[0].problem, planned.queries
    prompts = layout.lay_out(
        problem.task,
        planned.demonstrations,
        list(queries.values()),
        planned.model.tokenize,
        planned.model.config.num_positions,
        problem.truncation,
    )
    return Reading(planned, prompts, {text: place for place, text in enumerate(queries)})


def shape_of(readings: Sequence[Reading], model: lm.LanguageModel) -> Callable[[layout.PromptGroup], packing.PackShape]:
    """A packing for all of some passes, which share their compilations: one with a shared prefix, one without."""
    groups = (group for reading in readings for group in reading.prompts.groups)
    shapes = packing.choose_shapes(groups, model.step_tokens, model.mesh.shape[parallel.DATA])
    return lambda group: shapes[bool(len(group.prefix_P))]


def draft(
    run_settings: Mapping[str, Any],
    model: material.Model,
    rows: material.Rows,
    name: str,
    chosen: method_lib.Method,
    settings: options.Options,
    problem: method_lib.Problem,
    **fields: Any,
) -> Run:
    """A run, whose record's settings are those that the outcome depends on: `run_settings`, the rows and the method's options.

    `name` is the method that was asked for; `fields` are further fields of the record.
    """
    split = problem.split
    decisive = {**run_settings, "data": rows.digest[:16], "runs": chosen.name, "options": settings.to_dict()}
    record = records.Record(
        task=problem.task.name,
        model=model.name,
        method=name,
        seed=split.seed,
        shots=split.shots,
        demo_shots=split.demo_shots,
        accuracy=float("nan"),
        predicted=(),
        true=tuple(example.label for example in problem.evaluation),
        settings=decisive,
        fingerprint=model.fingerprint,
        class_counts={
            label: {"word": word, **split.class_counts[label]._asdict()}
            for label, word in zip(problem.task.labels, problem.task.label_words, strict=True)
        },
        **fields,
    )
    return Run(chosen, settings, problem, record)
