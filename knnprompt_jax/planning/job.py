"""Plan a job for every mesh of a topology: memory per device, a lower bound of the time, and the mesh to choose.

The time is a roofline: the longest of operations / peak, bytes / memory bandwidth, and collective bytes / bandwidth of the links. It is a
lower bound. Operations and collective bytes are arithmetic, because XLA's cost analysis counts the body of a loop once.
"""

import dataclasses
import math
import pathlib

import jax.numpy as jnp
from jax.sharding import AbstractMesh

from knnprompt_jax import errors, files, parallel
from knnprompt_jax.lm import memory
from knnprompt_jax.lm import programs as lm_programs
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import sharding
from knnprompt_jax.planning import compiled, operations, targets, workload
from knnprompt_jax.planning import settings as settings_lib
from knnprompt_jax.prompts import packing
from knnprompt_jax.store import store as store_lib


@dataclasses.dataclass(frozen=True)
class Work:
    """The work of a device in a part of the job."""

    operations: float
    nbytes: float
    collective_bytes: float = 0.0

    def seconds(self, device: targets.Device, dtype: str) -> float | None:
        """Return the roofline's lower bound, or None for a device of unknown speed."""
        peak = device.peak_float32 if dtype == "float32" else device.peak
        if not peak:
            return None
        return max(self.operations / peak, self.nbytes / device.bandwidth, self.collective_bytes / device.links)


@dataclasses.dataclass(frozen=True)
class MeshPlan:
    """A mesh with what the job takes on each of its devices.

    Attributes:
        steps: packed steps of each data shard.
        need: memory of the pass by arithmetic.
        store: bytes of the anchors and of the head that encodes them.
        searching: bytes that a search takes beside weights and store.
        step, prefix, search: the work of one packed step, of the prefix, and of the search of all queries.
        programs: memory by XLA; empty if nothing was compiled.
    """

    device: targets.Device
    dtype: str
    data: int
    model: int
    steps: int
    anchors: int
    queries: int
    need: memory.Need
    store: int
    searching: int
    step: Work
    prefix: Work
    search: Work
    programs: dict[str, compiled.Memory]

    @property
    def error(self) -> str:
        """Why a program could not be compiled; empty if every program could be."""
        return next((each.error for each in self.programs.values() if each.error), "")

    @property
    def working(self) -> int:
        """Bytes of a pass beside weights and prefix."""
        if not self.programs:
            return self.need.working
        return max(each.peak for each in self.programs.values()) - self.need.weights - self.need.prefix

    @property
    def peak(self) -> int:
        """The most bytes at any time: while prompts are read, or while anchors are searched beside the weights."""
        reading = self.need.weights + self.need.prefix + self.working
        return max(reading, self.need.weights + self.store + self.searching)

    @property
    def is_out_of_memory(self) -> bool:
        margin = 1.0 if self.programs else memory.MARGIN
        return self.peak > margin * self.device.memory or "RESOURCE_EXHAUSTED" in self.error

    @property
    def fits(self) -> bool:
        return not self.error and not self.is_out_of_memory

    @property
    def step_seconds(self) -> float | None:
        return self.step.seconds(self.device, self.dtype)

    @property
    def anchors_per_second(self) -> float | None:
        reading = self._reading_seconds
        return None if reading is None else self.anchors / reading

    @property
    def job_seconds(self) -> float | None:
        """Seconds of reading anchors and queries and of the search."""
        reading, search = self._reading_seconds, self.search.seconds(self.device, "float32")
        return None if reading is None or search is None else reading * (1 + self.queries / self.anchors) + search

    @property
    def _reading_seconds(self) -> float | None:
        prefix, step = self.prefix.seconds(self.device, self.dtype), self.step_seconds
        return None if prefix is None or step is None else prefix + self.steps * step


@dataclasses.dataclass(frozen=True)
class JobPlan:
    """The plans of all meshes, the smallest `model` axis first."""

    settings: settings_lib.PlanSettings
    target: targets.Target
    model: str
    workload: workload.Workload
    rows: tuple[MeshPlan, ...]

    @property
    def recommended(self) -> MeshPlan | None:
        """The mesh with the smallest `model` axis that fits: splitting weights further costs time in collectives."""
        return next((row for row in self.rows if row.fits), None)


def run(settings: settings_lib.PlanSettings) -> JobPlan:
    """Plan the job. A mesh without enough memory is a row too.

    Raises:
        UserError: impossible settings.
    """
    files.check_writable(pathlib.Path(settings.output), folder=True)
    target = targets.get(settings.topology, settings.compile)
    subject = workload.describe(settings.model, settings.revision)
    sizes = [
        size for size in range(1, target.size + 1) if not target.size % size and sharding.divides(subject.config, size)
    ]
    chosen = [size for size in sizes if settings.mesh.model in (0, size)]
    if not chosen or settings.mesh.data not in (0, target.size // chosen[0]):
        raise errors.UserError(
            f"mesh.data={settings.mesh.data}, mesh.model={settings.mesh.model}: {target.name} has {target.size} devices; with the "
            f"heads of {subject.name}, mesh.model can be {parallel.listed(sizes)}; choose mesh.data=0"
        )
    work = workload.make(settings, subject)
    anchors = settings.anchors or work.prompts.num_prompts
    step_tokens = settings.batch or lm_programs.step_tokens(target.device.platform)
    rows = []
    for model in chosen:
        shape, steps = workload.pack(work, anchors, step_tokens, target.size // model)
        rows.append(_plan_mesh(settings, target, subject.config, shape, steps, anchors, model))
    return JobPlan(settings, target, subject.name, work, tuple(rows))


def _plan_mesh(
    settings: settings_lib.PlanSettings,
    target: targets.Target,
    config: config_lib.DecoderConfig,
    shape: packing.PackShape,
    steps: int,
    anchors: int,
    model: int,
) -> MeshPlan:
    data, device = target.size // model, target.device
    need = memory.of_pass(config, settings.dtype, shape, AbstractMesh((data, model), parallel.AXES), device.platform)
    programs = {}
    if settings.compile and device.platform == "tpu":
        programs = compiled.of_pass(config, settings.dtype, shape, compiled.mesh_of(target.devices(), data, model))
    # A ring all-reduce of the residual stream after attention and after the MLP of every block.
    size = jnp.dtype(config_lib.activations(config_lib.DTYPES[settings.dtype])).itemsize
    sent_per_token = 2 * config.num_layers * 2 * (model - 1) / model * config.width * size
    anchor_bytes = store_lib.anchor_bytes(
        settings.datastore, settings.distance, config.logit_cap, config.vocab_size, config.state_width, 2
    )
    anchors_per_device = math.ceil(anchors / target.size)
    numbers = anchor_bytes // jnp.dtype(settings.datastore.key_dtype).itemsize
    return MeshPlan(
        *(device, settings.dtype, data, model, steps, anchors, settings.queries, need),
        store=(anchor_bytes + 4) * anchors_per_device + 4 * config.vocab_size * config.state_width,
        searching=int(settings.datastore.memory_mb * 2**20),
        step=Work(
            operations.of_step(config, shape) / model,
            need.weights + need.prefix,
            sent_per_token * shape.rows * shape.width,
        ),
        prefix=Work(operations.of_prefix(config, shape.prefix) / model, need.weights, sent_per_token * shape.prefix),
        search=Work(2 * settings.queries * anchors_per_device * numbers, anchor_bytes * anchors_per_device),
        programs=programs,
    )
