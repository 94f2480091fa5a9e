"""What grids cost, as a table: distinct prompts, tokens, operations and hours of each, and of all that is left to do."""

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from knnprompt_jax import tables
from knnprompt_jax.paper import paces, plan
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.runs import passes as passes_lib

_COLUMNS = ("grid", "model", "tasks", "passes", "distinct prompts", "tokens, about", "PFLOP, about")
_OF_RECORDS = ("records", "there already")


def render(
    planned: plan.Plan, grids: Sequence[settings_lib.GridSettings], known: Mapping[str, paces.Pace] | None = None
) -> str:
    """The plan in words, a line for each grid with each model on its own, done or not, and one for what is left of all together.

    `known` says how fast each model reads, by name; without it there are no hours.
    """
    columns = [*_COLUMNS, *(["hours"] if known is not None else []), *_OF_RECORDS]
    told = [f"hours: {name}: {pace.told}" for name, pace in (known or {}).items()]
    return "\n".join([planned.told, "", tables.render(columns, list(_lines(planned, grids, known))), *told])


def _lines(
    planned: plan.Plan, grids: Sequence[settings_lib.GridSettings], known: Mapping[str, paces.Pace] | None
) -> Iterator[list[str]]:
    for grid in grids:
        by_model = collections.defaultdict(list)
        for each in planned.whole:
            if runs := tuple(run for run in each.runs if run.record.experiment == grid.experiment):
                by_model[each.model.short_name].append(dataclasses.replace(each, runs=runs))
        for name, passes in by_model.items():
            there = sum(run.record.name in planned.done for each in passes for run in each.runs)
            yield _line(grid.experiment, name, passes, known, there)
    if planned.passes:
        yield _line("left to do, together", "", planned.passes, known, 0)


def _line(
    grid: str, model: str, passes: Sequence[passes_lib.Pass], known: Mapping[str, paces.Pace] | None, there: int
) -> list[str]:
    """Two operations per parameter and token."""
    tasks = {each.runs[0].problem.task.name for each in passes}
    prompts, tokens = (sum(counts) for counts in zip(*(each.cost for each in passes), strict=True))
    numbers = [f"{number:,}" for number in (len(tasks), len(passes), prompts, tokens)]
    numbers.append(f"{2e-15 * sum(each.work for each in passes):,.3g}")
    runs = sum(len(each.runs) for each in passes)
    return [grid, model, *numbers, *(_hours(passes, known) if known is not None else []), f"{runs:,}", f"{there:,}"]


def _hours(passes: Sequence[passes_lib.Pass], known: Mapping[str, paces.Pace]) -> list[str]:
    """Of the passes whose pace is known; with a + where that is not all of them."""
    seconds = [known[each.model.name].seconds(each.work) for each in passes]
    found = [each for each in seconds if each is not None]
    if not found:
        return ["–"]
    return [f"{sum(found) / 3600:,.3g}{'+' if len(found) < len(seconds) else ''}"]
