"""States of a device against those of a CPU, in float32, and predictions in bfloat16 against those in float32."""

import functools
from collections.abc import Iterator

import jax
import numpy as np

from knnprompt_jax import errors, lm, shipped
from knnprompt_jax.check import findings
from knnprompt_jax.check import inputs as inputs_lib

ALLOWED_SHARE = 0.2
_HALF_NATS = {inputs_lib.TINY: inputs_lib.HALF_NATS, shipped.DEFAULT: 2.0}
_SECONDS = 60.0  # The trained model takes at most as long.
_K = 3


def run(inputs: inputs_lib.Inputs, name: str) -> Iterator[findings.Finding]:
    """Compare all prompts of the demo task."""
    try:
        shipped.locate(name)
    except errors.UserError as error:
        yield findings.Skipped(name, str(error))
        return
    if name == inputs_lib.TINY:
        device = inputs.tested
        wanted_NV = inputs.reference_NV
    else:
        cpu = inputs.model(name, inputs.cpu)
        device = inputs.model(name, inputs.device)
        wanted_NV = inputs_lib.log_probabilities(cpu, inputs.prompts(cpu))
    title = f"{name} in float32, device against CPU, nats"
    if _is_reference(inputs.device):
        yield findings.Skipped(title, "the device is the reference")
    else:
        deviation = inputs_lib.largest(inputs_lib.log_probabilities(device, inputs.prompts(device)) - wanted_NV)
        yield findings.Comparison(title, deviation, inputs_lib.NATS, inputs_lib.NATS_REASON)
    half = inputs.model(name, inputs.device, "bfloat16")
    half_NV = inputs_lib.log_probabilities(half, inputs.prompts(half))
    predicted = [_predict(inputs, device, logp_NV) for logp_NV in (wanted_NV, half_NV)]
    num_rows = len(predicted[0])
    yield findings.Comparison(
        f"{name} in bfloat16 against float32, nats",
        inputs_lib.largest(half_NV - wanted_NV),
        _HALF_NATS[name],
        inputs_lib.HALF_REASON,
    )
    yield findings.Comparison(
        f"{name} in bfloat16 against float32, rows of {num_rows} whose prediction differs",
        float((predicted[0] != predicted[1]).sum()) if np.isfinite(half_NV).all() else np.nan,
        int(ALLOWED_SHARE * num_rows),
        "bfloat16 has 8 bits, which decide rows whose nearest anchors are about equally near",
    )


def _is_reference(mesh: jax.sharding.Mesh) -> bool:
    """Return whether the reference is computed on the same kind of device."""
    return mesh.devices.flat[0].platform == "cpu"


def _predict(inputs: inputs_lib.Inputs, model: lm.LanguageModel, logp_NV: np.ndarray) -> np.ndarray:
    """Return the class of each query by the vote of its three nearest anchors, by KL in float64."""
    split = inputs.problem(model).split
    labels = list(split.class_counts)
    classes_A = np.array([labels.index(example.label) for example in split.anchors])
    logk_AV = logp_NV[: len(classes_A)]
    logp_QV = logp_NV[len(classes_A) :]
    distances_QA = -np.exp(logp_QV) @ logk_AV.T
    nearest_Qk = distances_QA.argsort(-1, kind="stable")[:, :_K]
    votes_QC = np.stack([(classes_A[nearest_Qk] == label).sum(-1) for label in range(len(labels))], -1)
    return votes_QC.argmax(-1)


CHECKS = (findings.Check("states", functools.partial(run, name=inputs_lib.TINY)),)
OF_TRAINED_MODEL = findings.Check(
    "states", functools.partial(run, name=shipped.DEFAULT), seconds=lambda inputs: _SECONDS
)
