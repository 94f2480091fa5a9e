"""States of a device against those of a CPU, in float32, and predictions in bfloat16 against those in float32."""

import functools
from collections.abc import Iterator

import numpy as np

from knnprompt_jax import errors, lm, shipped
from knnprompt_jax.check import check
from knnprompt_jax.check import subject as subject_lib

ALLOWED_SHARE = 0.2
_SECONDS = 60.0  # Of the trained model, at most.
_K = 3


def run(subject: subject_lib.Subject, name: str) -> Iterator[check.Finding]:
    """Compare all prompts of the demo task."""
    if name == subject_lib.TINY:
        cpu = subject.reference
        device = subject.tested
        wanted = subject.reference_states
    else:
        try:
            shipped.locate(name)
        except errors.UserError as error:
            yield check.Skipped(name, str(error))
            return
        cpu = subject.model(name, subject.cpu)
        device = subject.model(name, subject.device)
        wanted = subject_lib.read(cpu, subject.prompts(cpu))
    head_VE = subject_lib.head_rows(cpu)
    wanted_NV = subject_lib.log_probabilities(head_VE, wanted)
    found_NV = subject_lib.log_probabilities(head_VE, subject_lib.read(device, subject.prompts(device)))
    deviation = subject_lib.largest(found_NV - wanted_NV)
    yield check.Comparison(
        f"{name} in float32, device against CPU, nats", deviation, subject_lib.NATS, subject_lib.NATS_REASON
    )
    half = subject.model(name, subject.device, "bfloat16")
    half_NV = subject_lib.log_probabilities(subject_lib.head_rows(half), subject_lib.read(half, subject.prompts(half)))
    predicted = [_predict(subject, cpu, logp_NV) for logp_NV in (wanted_NV, half_NV)]
    num_rows = len(predicted[0])
    yield check.Comparison(
        f"{name} in bfloat16 against float32, rows of {num_rows} whose prediction differs",
        float((predicted[0] != predicted[1]).sum()) if np.isfinite(half_NV).all() else np.nan,
        int(ALLOWED_SHARE * num_rows),
        "bfloat16 has 8 bits, which decide rows whose nearest anchors are about equally near",
    )


def _predict(subject: subject_lib.Subject, model: lm.LanguageModel, logp_NV: np.ndarray) -> np.ndarray:
    """Return the class of each query by the vote of its three nearest anchors, by KL in float64."""
    split = subject.problem(model).split
    labels = list(split.class_counts)
    classes_A = np.array([labels.index(example.label) for example in split.anchors])
    logk_AV = logp_NV[: len(classes_A)]
    logp_QV = logp_NV[len(classes_A) :]
    distances_QA = -np.exp(logp_QV) @ logk_AV.T
    nearest_Qk = distances_QA.argsort(-1, kind="stable")[:, :_K]
    votes_QC = np.stack([(classes_A[nearest_Qk] == label).sum(-1) for label in range(len(labels))], -1)
    return votes_QC.argmax(-1)


CHECKS = (check.Check("states", functools.partial(run, name=subject_lib.TINY)),)
OF_TRAINED_MODEL = check.Check("states", functools.partial(run, name=shipped.DEFAULT), seconds=lambda subject: _SECONDS)
