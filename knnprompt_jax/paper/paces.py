"""How fast each model reads, from which the hours of a plan follow: measured here, given, or estimated for devices that are not here."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh

from knnprompt_jax import parallel
from knnprompt_jax.models import registry as models
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.planning import job as planning
from knnprompt_jax.planning import settings as planning_settings
from knnprompt_jax.prompts import layout
from knnprompt_jax.runs import engine
from knnprompt_jax.runs import passes as passes_lib

STEPS = 2  # That are measured.
_ANCHORS = 4096  # That are planned for: enough to fill the steps of many devices.


@dataclasses.dataclass(frozen=True)
class Pace:
    """Operations per second, two per parameter and token, None where it is not known; and in words where it is from."""

    operations: float | None
    told: str

    def seconds(self, work: float) -> float | None:
        """For so many parameters times tokens."""
        return None if self.operations is None else 2 * work / self.operations


def of_models(settings: settings_lib.GridSettings, passes: Sequence[passes_lib.Pass], mesh: Mesh) -> Mapping[str, Pace]:
    """The pace of each model of these passes: of the devices `topology`, as given by `tflops`, or measured where weights are here.

    Raises UserError where the devices cannot be planned for, or a model not be loaded.
    """
    largest: dict[str, passes_lib.Pass] = {}
    for each in passes:
        known = largest.get(each.model.name)
        if not known or each.work > known.work:
            largest[each.model.name] = each
    return {name: _pace(settings, each, mesh) for name, each in largest.items()}


def _pace(settings: settings_lib.GridSettings, planned: passes_lib.Pass, mesh: Mesh) -> Pace:
    if settings.tflops:
        return Pace(settings.tflops * 1e12, f"{settings.tflops:g} TFLOP/s, as given by tflops")
    if not planned.reads_prompts:
        return Pace(None, "it is trained, which is not measured: give tflops=…")
    if settings.topology:
        return estimated(settings, planned)
    if not planned.model.fingerprint:
        return Pace(None, "its weights are not here to be measured: give tflops=… or topology=…")
    return measured(settings, planned, mesh)


def measured(settings: settings_lib.GridSettings, planned: passes_lib.Pass, mesh: Mesh) -> Pace:
    """Reads prompts of a pass that fill about `STEPS` steps, twice: the first time compiles."""
    model = engine.load(settings, planned.model, mesh)
    tokens = STEPS * model.step_tokens * mesh.shape[parallel.DATA]
    prompts = first_prompts(passes_lib.lay_out(planned).prompts, tokens)
    for _ in range(2):
        before = dataclasses.replace(model.statistics)
        model.states(prompts)
    after = model.statistics
    read = after.tokens - before.tokens
    rate = read / (after.seconds - before.seconds)
    operations = 2.0 * models.num_parameters(planned.model.config) * rate
    told = f"{rate:,.0f} tokens per second ({operations / 1e12:.3g} TFLOP/s), measured here on {read:,} tokens"
    return Pace(operations, told)


def first_prompts(prompts: layout.Prompts, tokens: int) -> layout.Prompts:
    """The first prompts of the largest group, as many as have so many tokens after their prefix, or all."""
    group = max(prompts.groups, key=lambda group: len(group.suffixes))
    before = np.cumsum([0, *map(len, group.suffixes[:-1])])
    part = group.take(np.flatnonzero(before < tokens))
    return layout.Prompts((dataclasses.replace(part, index=np.arange(len(part.suffixes))),), len(part.suffixes))


def estimated(settings: settings_lib.GridSettings, planned: passes_lib.Pass) -> Pace:
    """By the compiler of the devices `topology`, for prompts of the pass's task; the mesh is the one that arithmetic recommends."""
    problem = planned.runs[0].problem
    names = ("dtype", "batch", "revision", "data_dir", "encoding", "label_column", "hub", "restore_dropped", "output")
    shared: dict[str, Any] = {name: getattr(settings, name) for name in names}
    asked = planning_settings.PlanSettings(
        **shared,
        model=planned.model.name,
        task=problem.task.name,
        topology=settings.topology,
        shots=problem.split.demo_shots + 32,
        demo_shots=problem.split.demo_shots,
        anchors=_ANCHORS,
        compile=False,
    )
    row = planning.run(asked).recommended
    if row is None:
        return Pace(None, f"it does not fit on {settings.topology}")
    meshed = dataclasses.replace(asked, compile=True, mesh=dataclasses.replace(asked.mesh, model=row.model))
    (row,) = planning.run(meshed).rows
    place = f"{settings.topology}, mesh {row.data} × {row.model}"
    if row.error or row.anchors_per_second is None:
        return Pace(None, f"on {place} the compiler estimates no time {row.error}".rstrip())
    prompts, tokens = planned.cost
    rate = row.anchors_per_second * tokens / prompts
    operations = 2.0 * models.num_parameters(planned.model.config) * rate
    return Pace(operations, f"{rate:,.0f} tokens per second, ESTIMATED by the compiler for {place}")
