"""One pass of the language model for all methods: the prompts they need, read together, and what each makes of them."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from knnprompt_jax import lm
from knnprompt_jax import progress as progress_lib
from knnprompt_jax.methods import method, registry
from knnprompt_jax.prompts import layout, packing
from knnprompt_jax.tasks.task import Example


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is decided before the weights load: the methods with their options, and the prompts that they share.

    `rows` says which of the prompts each set has; `left_out` why a method of "all" does not apply.
    """

    problem: method.Problem
    methods: tuple[method.Method, ...]
    options: Mapping[str, Mapping[str, Any]]
    prompts: layout.Prompts
    rows: Mapping[method.Prompts, slice]
    left_out: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result(method.Prediction):
    """What a method predicts, and what that cost.

    `seconds` are its own, passes of its own included and the shared pass not. `lm_tokens` are those it would have the
    model read if it ran alone: the shared prefix once, its prompts' other tokens, and those that its own passes read,
    where common beginnings may count once.
    """

    method: str
    seconds: float
    lm_tokens: int


def plan(
    problem: method.Problem,
    names: Sequence[str],
    context: int,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Plan:
    """Lays out the union of the prompts that the methods need, for a model that reads `context` tokens.

    Args:
      names: of `registry.METHODS`, or ("all",) for all that apply.
      options: by method name, options in the place of the defaults.

    Raises:
      UserError: an unknown method or option, a method that does not apply, or prompts that cannot be laid out.
    """
    methods, left_out = registry.select(names, problem)
    given = options or {}
    for name in given:
        registry.get(name)
    chosen = {one.name: registry.with_options(one, given.get(one.name, {})) for one in methods}
    for one in methods:
        one.prepare(problem, **chosen[one.name])
    sets = dict.fromkeys(prompts for one in methods for prompts in one.needs)
    rows: dict[method.Prompts, slice] = {}
    examples: list[Example] = []
    for prompts in sets:
        start = len(examples)
        examples += prompts(problem)
        rows[prompts] = slice(start, len(examples))
    return Plan(
        problem=problem,
        methods=tuple(methods),
        options=chosen,
        prompts=layout.lay_out(
            problem.task, problem.split.demonstrations, examples, problem.tokenize, context, problem.truncation
        ),
        rows=rows,
        left_out=left_out,
    )


def read(
    model: lm.LanguageModel,
    planned: Plan,
    shape: Callable[[layout.PromptGroup], packing.PackShape] | None = None,
    progress: progress_lib.Progress | None = None,
) -> method.Context:
    """The shared pass: all prompts of the plan, read once. `shape` and `progress` as for `LanguageModel.states`."""
    states = model.states(planned.prompts, shape, progress)
    return method.Context(planned.problem, model, {prompts: states[rows] for prompts, rows in planned.rows.items()})


def classify(context: method.Context, planned: Plan) -> Iterator[Result]:
    """What the methods of the plan make of the shared pass, one after the other."""
    return (_run(one, context, planned) for one in planned.methods)


def run(model: lm.LanguageModel, planned: Plan) -> dict[str, Result]:
    """Reads the plan's prompts in one pass and runs its methods; results by name."""
    return {result.method: result for result in classify(read(model, planned), planned)}


def _run(one: method.Method, context: method.Context, planned: Plan) -> Result:
    before, started = _tokens_read(context.model), time.monotonic()
    prediction = one.run(context, **planned.options[one.name])
    return Result(
        **vars(prediction),
        method=one.name,
        seconds=time.monotonic() - started,
        lm_tokens=_shared_tokens(one, planned) + _tokens_read(context.model) - before,
    )


def _tokens_read(model: lm.LanguageModel) -> int:
    return model.statistics.prefix_tokens + model.statistics.suffix_tokens


def _shared_tokens(one: method.Method, planned: Plan) -> int:
    """Tokens of the shared pass that a method needs: prefixes of the groups where it has prompts, and its suffixes."""
    needed_N = np.zeros(planned.prompts.num_prompts, bool)
    for prompts in one.needs:
        needed_N[planned.rows[prompts]] = True
    tokens = 0
    for group in planned.prompts.groups:
        lengths = [len(suffix) for suffix, index in zip(group.suffixes, group.index, strict=True) if needed_N[index]]
        tokens += sum(lengths) + (len(group.prefix_P) if lengths else 0)
    return tokens
