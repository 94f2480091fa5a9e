"""The inputs of all checks: the demo task's prompts, models that read them, and meshes of one device."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax import lm, parallel
from knnprompt_jax import states as states_lib
from knnprompt_jax.benchmark import timing
from knnprompt_jax.methods import method
from knnprompt_jax.models import DTYPES
from knnprompt_jax.prompts import layout
from knnprompt_jax.settings import check as settings_lib
from knnprompt_jax.settings import grids
from knnprompt_jax.study import job_inputs as run_inputs
from knnprompt_jax.tasks import splits

TINY = "tiny"
NATS = 2e-4
NATS_REASON = (
    "float32 rounds logits of tens of nats by about 1e-5, and layers add up to 1e-4; products of operands rounded to "
    "TF32 would differ by 1e-3"
)
HALF_NATS = 0.25  # Of the tiny model.
HALF_REASON = "about four times the error of activations with 8 bits"
_SHOTS = 8
_DEMO_SHOTS = 2
_QUERIES = 60
_SEED = 1


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The prompts, models and meshes of all checks, and the measured speed of the device."""

    settings: settings_lib.CheckSettings

    def problem(self, model: lm.LanguageModel) -> method.Problem:
        """Return a split of the demo task with some rows to classify."""
        options = grids.ComparisonSettings()
        rows = run_inputs.load_rows(options, options.task, count=_QUERIES)
        split = splits.draw(rows.train, rows.task, shots=_SHOTS, demo_shots=_DEMO_SHOTS, seed=_SEED)
        return run_inputs.make_problem(options, model, rows.task, split, rows.evaluation)

    def prompts(self, model: lm.LanguageModel, rows: Sequence[int] | None = None, context: int = 0) -> layout.Prompts:
        """Return prompts of the problem: those of the anchors, then those of the queries.

        Args:
            rows: the numbers of the prompts to return, in this order; by default all.
            context: the maximum number of tokens of a prompt; 0: the model's.
        """
        problem = self.problem(model)
        examples = [*problem.split.anchors, *problem.evaluation]
        chosen = examples if rows is None else [examples[row] for row in rows]
        return problem.build_prompts(problem.split.demonstrations, chosen, context or model.context)

    def model(self, name: str, mesh: jax.sharding.Mesh, dtype: str = "float32", **options: Any) -> lm.LanguageModel:
        """Return a model on a mesh; it loads its weights at its first pass."""
        return lm.LanguageModel.from_pretrained(name, dtype, mesh=mesh, **options)

    @functools.cached_property
    def cpu(self) -> jax.sharding.Mesh:
        """A CPU of this process, on which references are computed."""
        return parallel.make_mesh_on(jax.local_devices(backend="cpu")[:1], 1, 1)

    @functools.cached_property
    def device(self) -> jax.sharding.Mesh:
        """A device of this process."""
        return parallel.make_mesh_on(jax.local_devices()[:1], 1, 1)

    @functools.cached_property
    def reference(self) -> lm.LanguageModel:
        """The tiny model on a CPU."""
        return self.model(TINY, self.cpu)

    @functools.cached_property
    def tested(self) -> lm.LanguageModel:
        """The tiny model on a device."""
        return self.model(TINY, self.device)

    @functools.cached_property
    def reference_NV(self) -> np.ndarray:
        """The log-probabilities after all prompts by the tiny model on a CPU."""
        return log_probabilities(self.reference, self.prompts(self.reference))

    @functools.cached_property
    def operations_per_second(self) -> dict[str, float]:
        """The measured speed of a product of large matrices on a device, by dtype."""
        speeds = {}
        for name in DTYPES:
            turn, operations = timing.matrix_products(jnp.dtype(name))
            speeds[name] = operations / timing.medians({name: turn}, 3)[name]
        return speeds

    @functools.cached_property
    def bytes_per_second(self) -> float:
        """The measured bandwidth between a device and its memory."""
        turn, num_bytes = timing.memory_reads()
        return num_bytes / timing.medians({"bytes": turn}, 3)["bytes"]


def read(model: lm.LanguageModel, prompts: layout.Prompts) -> lm.States:
    """Return the states of prompts in the host memory of every process; nothing is cached."""
    return jax.tree.map(np.asarray, parallel.replicate(states_lib.read(model, prompts)))


def log_probabilities(model: lm.LanguageModel, prompts: layout.Prompts) -> np.ndarray:
    """Return log p [N, V] in nats after prompts, with float64 products of states and head."""
    states = read(model, prompts)
    head_VE = np.asarray(parallel.replicate(model.head.rows_VE), np.float64)
    return np.asarray(states.hidden_NE, np.float64) @ head_VE.T - np.asarray(states.log_z_N, np.float64)[:, None]


def largest(difference: np.ndarray) -> float:
    """Return the largest absolute value; NaN if any is NaN."""
    return float(np.abs(difference).max())
