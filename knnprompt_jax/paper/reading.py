"""A pass while it runs: its prompts laid out, read once, and dealt out to its runs."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from knnprompt_jax import lm, parallel
from knnprompt_jax.methods import method
from knnprompt_jax.paper import passes
from knnprompt_jax.prompts import layout, packing


@dataclasses.dataclass(frozen=True)
class Reading:
    """A pass with its prompts; `place` is where a query's text stands among them."""

    planned: passes.Pass
    prompts: layout.Prompts
    place: dict[str, int]

    def rows(self, run: passes.Run, prompts: method.Prompts) -> np.ndarray:
        """The places [N] of a set of prompts."""
        task = run.problem.task
        return np.array([self.place[task.render(example)] for example in prompts(run.problem)], int)

    def context(self, run: passes.Run, model: lm.LanguageModel | None, states: lm.States | None) -> method.Context:
        """What a run's method predicts from; one that trains a model of its own sees no other."""
        own = {prompts: states[self.rows(run, prompts)] for prompts in run.cell.declared.needs} if states else {}
        return method.Context(run.problem, model, own)  # type: ignore[arg-type]

    def costs(self, run: passes.Run) -> dict[str, Any]:
        """Prompts, truncated ones and tokens that a run would have read if it ran alone."""
        needed_N = np.zeros(self.prompts.num_prompts, bool)
        for prompts in run.cell.declared.needs:
            needed_N[self.rows(run, prompts)] = True
        truncated, tokens = 0, 0
        for number, group in enumerate(self.prompts.groups, 1):
            own = [len(suffix) for suffix, place in zip(group.suffixes, group.index, strict=True) if needed_N[place]]
            tokens += sum(own) + (len(group.prefix_P) if own else 0)
            is_truncated = self.prompts.num_truncated > 0 and number == len(self.prompts.groups)
            truncated += len(own) if is_truncated else 0
        return {"prompts": int(needed_N.sum()), "truncated_prompts": truncated, "lm_tokens": tokens}


def lay_out(planned: passes.Pass) -> Reading:
    """Tokenizes the prompts of a pass; those too long for the context are cut on the left, as published."""
    subject, queries = planned.subject, planned.queries
    prompts = layout.lay_out(
        subject.rows.task,
        planned.demonstrations,
        list(queries.values()),
        subject.model.tokenize,
        subject.model.config.num_positions,
    )
    return Reading(planned, prompts, {text: place for place, text in enumerate(queries)})


def shape_of(readings: Sequence[Reading], model: lm.LanguageModel) -> Callable[[layout.PromptGroup], packing.PackShape]:
    """One packing for all of some passes: they share their compilations."""
    groups = (group for reading in readings for group in reading.prompts.groups)
    shapes = packing.choose_shapes(groups, model.step_tokens, model.mesh.shape[parallel.DATA])
    return lambda group: shapes[bool(len(group.prefix_P))]
