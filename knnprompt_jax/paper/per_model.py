"""What single models of a grid run with: dtype, batch and mesh of their own, said in one place."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.methods import registry
from knnprompt_jax.paper import experiments
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.report import published

_OPTIONS = {"dtype": str, "batch": int, "mesh.data": int, "mesh.model": int}


def check(grids: Sequence[settings_lib.GridSettings], text: str) -> None:
    """Raises UserError on a text that cannot be read, and on a model that no grid has."""
    known = {published.model_of(name) for grid in grids for name in grid.model_names}
    if missing := [name for name in _read(text) if name not in known]:
        there = ", ".join(sorted(known))
        raise errors.UserError(f"per_model={text!r}: no grid has the model {missing[0]!r}; choose from {there}")


def split(grids: Sequence[settings_lib.GridSettings], text: str) -> list[list[settings_lib.GridSettings]]:
    """Grids whose models run alike, group by group, from `opt-30b mesh.model=8 dtype=bfloat16; gpt2-xl batch=8192`.

    Raises UserError on a text that cannot be read and on a value that is none.
    """
    own = _read(text)
    groups: dict[Any, list[settings_lib.GridSettings]] = {}
    for grid in grids:
        for part in _parts(grid, own):
            groups.setdefault((part.dtype, part.batch, part.mesh), []).append(part)
    return list(groups.values())


def _parts(grid: settings_lib.GridSettings, own: Mapping[str, dict[str, Any]]) -> Iterator[settings_lib.GridSettings]:
    """The grid for all models without options of their own, then for each that has some; models that methods train are in the first.

    What is held against expected numbers keeps its dtype.
    """
    methods = ",".join(name for name in grid.method_names if not registry.get(name).own_model)
    alike = [name for name in grid.model_names if published.model_of(name) not in own]
    single = [name for name in grid.model_names if name not in alike] if methods else []
    if alike or not single or methods != ",".join(grid.method_names):
        yield dataclasses.replace(grid, models=",".join(alike))
    for name in single:
        values = own[published.model_of(name)]
        mesh = {option.removeprefix("mesh."): value for option, value in values.items() if "." in option}
        others = {option: value for option, value in values.items() if "." not in option}
        if experiments.get(grid.experiment).check:
            others.pop("dtype", None)
        meshed = dataclasses.replace(grid.mesh, **mesh)
        yield dataclasses.replace(grid, models=name, methods=methods, mesh=meshed, **others)


def _read(text: str) -> dict[str, dict[str, Any]]:
    """For each model its options."""
    found: dict[str, dict[str, Any]] = {}
    for part in filter(str.strip, text.split(";")):
        name, *given = part.split()
        values = found.setdefault(published.model_of(name), {})
        for each in given:
            option, _, value = each.partition("=")
            if option not in _OPTIONS or not value or (_OPTIONS[option] is int and not value.isdecimal()):
                raise errors.UserError(
                    f"per_model={text!r}: {each!r}: write model by model its options, as in 'opt-30b mesh.model=8 dtype=bfloat16; "
                    f"gpt2-xl batch=8192'; there are {', '.join(_OPTIONS)}"
                )
            values[option] = _OPTIONS[option](value)
    return found
