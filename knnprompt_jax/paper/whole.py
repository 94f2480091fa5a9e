"""All tables and figures as one job: their grids, each as it ships, narrowed together."""

import dataclasses
from typing import Any

from knnprompt_jax import errors, options
from knnprompt_jax.paper import experiments
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.report import published

NAME = "all"
_OWN = ("experiment", "regime")  # A grid's own, whatever is asked of all.


@dataclasses.dataclass(frozen=True)
class WholeSettings(settings_lib.GridSettings):
    """Those that hold for every grid; what is empty is each grid's own."""

    tasks: str = options.option("", "Of each grid's own tasks these only; empty: all of them.")
    models: str = options.option("", "In place of each grid's models; of the paper's models, those that a grid has.")
    methods: str = options.option("", "Of each grid's own methods these only; empty: all of them.")
    shots: tuple[int, ...] = options.option((), "Of each grid's own m these only; empty: all of them.", least=1)
    seeds: tuple[int, ...] = options.option((), "Of each grid's own seeds these only; empty: all of them.", least=0)


def config() -> dict[str, Any]:
    """The values that replace the defaults of the options."""
    return {"experiment": NAME, "restore_dropped": True}


def settings_of(config: Any) -> type[settings_lib.GridSettings]:
    """The declaration of a config's options; raises UserError where its experiment is none."""
    return WholeSettings if config["experiment"] == NAME else experiments.get(config["experiment"]).settings


def grids(settings: WholeSettings) -> list[settings_lib.GridSettings]:
    """The grids with something left to run, those of the gate first, which is read in float32 as its expected numbers were.

    Raises UserError where nothing is left of any.
    """
    shared = {field.name for field in dataclasses.fields(settings_lib.GridSettings)} - {*_OWN, *_narrowing()}
    found, only_shots = [], bool(settings.shots or settings.few_shots)
    for experiment in experiments.EXPERIMENTS.values():
        own = experiment.shipped
        narrowed = {name: _narrowed(name, getattr(settings, name), getattr(own, name)) for name in _narrowing()}
        narrowed |= {name: () for name in ("shots", "few_shots") if only_shots and not getattr(settings, name)}
        values = narrowed | {name: getattr(settings, name) for name in shared}
        values |= {"dtype": own.dtype} if experiment.check else {}
        if all(narrowed[name] or not getattr(own, name) for name in ("tasks", "methods", "seeds")) and _has_shots(
            own, narrowed
        ):
            found.append(dataclasses.replace(own, **values))
    if not found:
        asked = {name: getattr(settings, name) for name in _narrowing()}
        told = ", ".join(f"{name}={value!r}" for name, value in asked.items() if value)
        raise errors.UserError(f"all: no table or figure has anything left to run with {told}")
    return found


def _narrowing() -> tuple[str, ...]:
    return ("tasks", "models", "methods", "shots", "few_shots", "seeds")


def _has_shots(own: settings_lib.GridSettings, narrowed: dict) -> bool:
    return bool(narrowed["shots"] or narrowed["few_shots"]) or not (own.shots or own.few_shots)


def _narrowed(name: str, asked: str | tuple[int, ...], own: str | tuple[int, ...]) -> str | tuple[int, ...]:
    """What is left of a grid's own values; other models than the paper's take their place."""
    if not asked:
        return own
    if isinstance(asked, tuple):
        return tuple(value for value in own if value in asked)
    wanted = settings_lib.split_names(asked)
    known = {published.model_of(each) for each in wanted} if name == "models" else set(wanted)
    kept = [
        each
        for each in settings_lib.split_names(str(own))
        if (published.model_of(each) if name == "models" else each) in known
    ]
    return ",".join(wanted if name == "models" and not kept else kept)
