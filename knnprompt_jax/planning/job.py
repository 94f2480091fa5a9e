"""A plan: a job's programs for every mesh of a topology, what they take and how long, and which mesh to choose."""

import dataclasses
import pathlib

from jax.sharding import AbstractMesh

from knnprompt_jax import errors, files, parallel
from knnprompt_jax.lm import memory
from knnprompt_jax.lm import programs as lm_programs
from knnprompt_jax.models import sharding
from knnprompt_jax.planning import compiler, hlo, programs, targets, workload
from knnprompt_jax.planning import settings as settings_lib

COMPILED = (programs.PREFIX, programs.SUFFIXES, programs.SEARCH)


@dataclasses.dataclass(frozen=True)
class MeshPlan:
    """One mesh: what the job takes there on each device, and what the compiler says of each program (nothing where none was asked).

    Bytes are `pass_memory` (by arithmetic) and `store`. `steps` go through each data shard.
    """

    device: targets.Device
    data: int
    model: int
    steps: int
    anchors: int
    queries: int
    pass_memory: memory.Need
    store: int
    figures: dict[str, compiler.Figures]

    @property
    def error(self) -> str:
        """Why there is no program; empty where there is."""
        return next((each.error for each in self.figures.values() if each.error), "")

    @property
    def working(self) -> int:
        """Bytes beside weights and prefix in the reading of suffixes."""
        suffixes = self.figures.get(programs.SUFFIXES)
        return (
            self.peak_of_reading - self.pass_memory.weights - self.pass_memory.prefix
            if suffixes
            else self.pass_memory.working
        )

    @property
    def peak_of_reading(self) -> int:
        figures = [self.figures[name].peak for name in (programs.PREFIX, programs.SUFFIXES) if name in self.figures]
        return max(figures, default=self.pass_memory.total)

    @property
    def peak(self) -> int:
        """The most bytes at any time: as prompts are read, or as anchors are searched beside the weights."""
        search = self.figures.get(programs.SEARCH)
        searching = self.pass_memory.weights + self.store + (search.temporaries + search.outputs if search else 0)
        return max(self.peak_of_reading, searching)

    @property
    def is_out_of_memory(self) -> bool:
        margin = 1.0 if self.figures else memory.MARGIN
        return self.peak > margin * self.device.memory or any(each.is_out_of_memory for each in self.figures.values())

    @property
    def fits(self) -> bool:
        return not self.error and not self.is_out_of_memory

    def seconds(self, program: str) -> float | None:
        """Of one call, as estimated, its collectives included; None where the compiler estimates nothing."""
        figures = self.figures.get(program)
        if not figures or not figures.cycles:
            return None
        return sum(figures.cycles.values()) / self.device.clock + self.collective_seconds(program)

    def collective_seconds(self, program: str) -> float:
        return sum(hlo.Collective(**each).sent for each in self.figures[program].collectives) / self.device.bandwidth

    @property
    def step_seconds(self) -> float | None:
        call = self.seconds(programs.SUFFIXES)
        return None if call is None else call / lm_programs.STEPS_PER_CALL

    @property
    def anchors_per_second(self) -> float | None:
        reading = self._reading
        return None if reading is None else self.anchors / reading

    @property
    def job_seconds(self) -> float | None:
        """Reading the anchors, reading the queries (which take as long, each), searching."""
        reading, search = self._reading, self.seconds(programs.SEARCH)
        if reading is None or search is None:
            return None
        return reading * (1 + self.queries / self.anchors) + search

    @property
    def _reading(self) -> float | None:
        prefix, step = self.seconds(programs.PREFIX), self.step_seconds
        return None if prefix is None or step is None else prefix + self.steps * step

    @property
    def share_of_peak(self) -> float | None:
        """Of the operations per second that the device can do, those in matrix products, as prompts are read."""
        call = self.seconds(programs.SUFFIXES)
        return None if call is None else self.figures[programs.SUFFIXES].operations / call / self.device.peak


@dataclasses.dataclass(frozen=True)
class JobPlan:
    """The rows of all meshes, the smallest `model` axis first."""

    settings: settings_lib.PlanSettings
    target: targets.Target
    subject: workload.PlannedModel
    prefix_tokens: int
    rows: tuple[MeshPlan, ...]

    @property
    def recommended(self) -> MeshPlan | None:
        """The mesh with the smallest `model` axis that fits: splitting weights further costs time in collectives."""
        return next((row for row in self.rows if row.fits), None)


def run(settings: settings_lib.PlanSettings) -> JobPlan:
    """Plans the job; raises UserError on settings that cannot work. A mesh on which it cannot run is a row all the same."""
    files.check_writable(pathlib.Path(settings.output), folder=True)
    target = targets.get(settings.topology, settings.compile)
    subject = workload.subject(settings)
    work = workload.make(settings, subject)
    rows = tuple(_row(settings, target, subject, work, *mesh) for mesh in _meshes(settings, target, subject))
    prefix = max(len(group.prefix_P) for group in work.prompts.groups)
    return JobPlan(settings, target, subject, prefix, rows)


def _meshes(
    settings: settings_lib.PlanSettings, target: targets.Target, subject: workload.PlannedModel
) -> list[tuple[int, int]]:
    """Sizes of `data` and `model` that use all devices and divide the model; raises UserError where there are none."""
    sizes = [
        size for size in range(1, target.size + 1) if target.size % size == 0 and sharding.divides(subject.config, size)
    ]
    chosen = [size for size in sizes if settings.mesh.model in (0, size)]
    if not chosen or settings.mesh.data not in (0, target.size // chosen[0]):
        raise errors.UserError(
            f"mesh.data={settings.mesh.data}, mesh.model={settings.mesh.model}: of {target.name}'s {target.size} devices and "
            f"the heads of {subject.name}, mesh.model can be {parallel.listed(sizes)}, with mesh.data=0"
        )
    return [(target.size // size, size) for size in chosen]


def _row(
    settings: settings_lib.PlanSettings,
    target: targets.Target,
    subject: workload.PlannedModel,
    work: workload.PlannedPrompts,
    data: int,
    model: int,
) -> MeshPlan:
    step_tokens = settings.batch or lm_programs.step_tokens(target.device.platform)
    packed = work.packed(step_tokens, data)
    search = programs.Search(work.anchors, settings.queries, settings.k, settings.distance, settings.datastore)
    job = programs.Job(subject.config, settings.dtype, packed.shape, search)
    figures = {}
    if settings.compile:
        request = compiler.Request(
            *(target.name, data, model, COMPILED, subject.hf, settings.dtype),
            *(dataclasses.asdict(packed.shape), dataclasses.asdict(search)),
        )
        figures = compiler.compile_all(request)
    mesh = AbstractMesh((data, model), parallel.AXES)
    need = memory.of_pass(subject.config, settings.dtype, packed.shape, mesh, target.device.platform)
    store = programs.store_bytes(job, target.size)
    return MeshPlan(target.device, data, model, packed.steps, work.anchors, settings.queries, need, store, figures)
