"""The interface of checks: their inputs, and the lines that they report."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from absl import logging

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.common import errors, parallel
from knnprompt_jax.inference import lm, states
from knnprompt_jax.inference.prompts import layout
from knnprompt_jax.methods import method
from knnprompt_jax.models import hub
from knnprompt_jax.study import comparison

PASS = "pass"
FAIL = "FAIL"
NOT_RUN = "not run"
TINY = "tiny"
# float32 rounds logits of tens of nats by about 1e-5, and the tiny model's layers add up to 1e-4. Products of operands
# rounded to TF32 would differ by 1e-3. The error of activations with 8 bits is about a quarter of its limit.
_NATS = {"float32": 2e-4, "bfloat16": 0.25}
_DEEPER = 10  # Larger models add up more: SmolLM2 errs by 5e-5 and 0.4 nats. TF32 would err by 0.05.
SETTINGS = grids.ComparisonSettings(shots=8, demo_shots=2, seeds=(1,), cache_gb=0)
NUM_QUERIES = 60


@dataclasses.dataclass(frozen=True)
class Line:
    """A comparison, or a part of a check without a result.

    Attributes:
        compared: what is compared with what, and the unit; "" for a whole check.
        deviation: the largest deviation; text if it is not finite, "" if there is none.
        allowed: the largest deviation that passes.
        result: PASS, FAIL or NOT_RUN.
        reason: why there is no deviation.
    """

    compared: str
    deviation: float | str
    allowed: float | str
    result: str
    reason: str = ""


def compare(compared: str, allowed: float, measure: Callable[..., float], *arguments: Any) -> Line:
    """Measure a deviation; the line fails if it is larger than allowed or NaN, or if `measure` raises."""
    try:
        deviation = float(measure(*arguments))
    except Exception as error:  # A compiler or a driver may raise any exception.
        return failure(compared, error)
    result = PASS if deviation <= allowed else FAIL
    return Line(compared, deviation if np.isfinite(deviation) else str(deviation), allowed, result)


def failure(compared: str, error: Exception) -> Line:
    """Return the line of an exception, and log its traceback."""
    logging.error("%s", compared, exc_info=error)
    return Line(compared, "", "", FAIL, f"{type(error).__name__}: {errors.shortened(errors.one_line(error))[:300]}")


def skipped(compared: str, reason: str) -> Line:
    """Return the line of a part that does not apply or does not fit."""
    return Line(compared, "", "", NOT_RUN, reason)


class Inputs:
    """The prompts of the demo task, and models that read them.

    Attributes:
        allowed: the largest deviation of a log-probability that rounding explains, by dtype, in nats.
    """

    def __init__(self, name: str = TINY):
        """Choose the model by name; raise UserError if it does not exist."""
        hub.resolve(name)
        self._name = name
        factor = 1 if name == TINY else _DEEPER
        self.allowed = {dtype: factor * nats for dtype, nats in _NATS.items()}

    def problem(self, model: lm.LanguageModel) -> method.Problem:
        """Return a split of the demo task, with some rows to classify."""
        [problem] = comparison.read_problems(SETTINGS, model)
        return dataclasses.replace(problem, evaluation=problem.evaluation[:NUM_QUERIES])

    def prompts(self, model: lm.LanguageModel, rows: Sequence[int] | None = None, context: int = 0) -> layout.Prompts:
        """Return prompts of the problem: those of the anchors, then those of the queries.

        Args:
            model: the model that reads them.
            rows: the numbers of the prompts to return, in this order; by default all.
            context: the maximum number of tokens of a prompt; 0: the model's.
        """
        problem = self.problem(model)
        examples = [*problem.split.anchors, *problem.evaluation]
        chosen = examples if rows is None else [examples[row] for row in rows]
        return problem.build_prompts(problem.split.demonstrations, chosen, context or model.context)

    def model(self, mesh: jax.sharding.Mesh, dtype: str = "float32", **options: Any) -> lm.LanguageModel:
        """Return the model on a mesh; it loads its weights at its first pass."""
        return lm.LanguageModel.from_pretrained(self._name, dtype, mesh=mesh, **options)

    def deviation(self, mesh: jax.sharding.Mesh, dtype: str = "float32") -> float:
        """Return the largest difference of log-probabilities on a mesh from those on a CPU, in nats."""
        model = self.model(mesh, dtype)
        return largest(log_probabilities(model, self.prompts(model)) - self.reference_NV)

    @functools.cached_property
    def cpu(self) -> jax.sharding.Mesh:
        """A CPU of this process, on which references are computed."""
        return parallel.make_mesh_on(jax.local_devices(backend="cpu")[:1], 1, 1)

    @functools.cached_property
    def device(self) -> jax.sharding.Mesh:
        """A device of this process."""
        return parallel.make_mesh_on(jax.local_devices()[:1], 1, 1)

    @functools.cached_property
    def reference_NV(self) -> np.ndarray:
        """The log-probabilities after all prompts, by the model on a CPU."""
        model = self.model(self.cpu)
        return log_probabilities(model, self.prompts(model))


Check = Callable[[Inputs], Iterator[Line | dict[str, Any]]]
"""Yields lines, and rows of the table of speeds."""


def read(model: lm.LanguageModel, prompts: layout.Prompts) -> lm.States:
    """Return the states of prompts in the host memory of every process; nothing is cached."""
    return jax.tree.map(np.asarray, parallel.replicate(states.read(model, prompts)))


def log_probabilities(model: lm.LanguageModel, prompts: layout.Prompts) -> np.ndarray:
    """Return log p [N, V] in nats after prompts, with float64 products of states and head."""
    found = read(model, prompts)
    head_VE = np.asarray(parallel.replicate(model.head.rows_VE), np.float64)
    return np.asarray(found.hidden_NE, np.float64) @ head_VE.T - np.asarray(found.log_z_N, np.float64)[:, None]


def largest(difference: np.ndarray) -> float:
    """Return the largest absolute value; NaN if any is NaN."""
    return float(np.abs(difference).max())
