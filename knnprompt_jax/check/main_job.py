"""`compare` on the demo task over all devices against a CPU: every prediction that rounding does not decide."""

import dataclasses
import pathlib
import tempfile
from collections.abc import Iterator

import numpy as np

from knnprompt_jax import lm, parallel
from knnprompt_jax.check import findings, worlds
from knnprompt_jax.check import inputs as inputs_lib
from knnprompt_jax.methods import method
from knnprompt_jax.settings import grids
from knnprompt_jax.study import comparison
from knnprompt_jax.study import job_inputs as run_inputs

_METHODS = ("icl", "knn")
_K = 3
_MARGIN = 2 * inputs_lib.NATS  # Rounding may change both of two compared numbers.


def run(inputs: inputs_lib.Inputs) -> Iterator[findings.Finding]:
    """Compare in-context learning and kNN Prompting with the tiny model in float32, row for row."""
    with tempfile.TemporaryDirectory() as folder:
        settings = grids.ComparisonSettings(
            model=inputs_lib.TINY, methods=_METHODS, shots=4, demo_shots=1, seeds=(1,), cache_gb=0, output=folder
        )
        predicted = []
        for name, mesh in (("device", parallel.make_mesh()), ("cpu", inputs.cpu)):
            own = dataclasses.replace(settings, output=str(pathlib.Path(folder) / name))
            model = inputs.model(inputs_lib.TINY, mesh)
            predicted.append(np.array([record.predicted for record in comparison.compare(own, model)]))
        [problem] = run_inputs.read_problems(settings, model)
    ours_MQ, theirs_MQ = predicted
    is_clear_MQ = _margins(problem, model) > _MARGIN
    num_unclear = int((~is_clear_MQ).sum())
    yield findings.Comparison(
        f"{' and '.join(_METHODS)}: predictions that differ from a CPU's, of {is_clear_MQ.sum()} rows "
        f"({num_unclear} more are within rounding of a tie)",
        int(((ours_MQ != theirs_MQ) & is_clear_MQ).sum()),
        0,
        f"a row counts if the numbers that decide it differ by more than {_MARGIN:g} nats",
    )


def _margins(problem: method.Problem, model: lm.LanguageModel) -> np.ndarray:
    """Return the difference that decides each row by each method, in nats [M, Q].

    For icl, it is between the most probable label word and the next; for knn, between the distances of the k-th
    neighbour and the next.
    """
    examples = [*problem.split.anchors, *problem.evaluation]
    prompts = problem.build_prompts(problem.split.demonstrations, examples, model.context)
    logp_NV = inputs_lib.log_probabilities(model, prompts)
    num_anchors = len(problem.split.anchors)
    logp_QV = logp_NV[num_anchors:]
    labels_QC = np.sort(logp_QV[:, problem.label_tokens], -1)
    distances_QA = np.sort(worlds.divergences("kl", logp_QV, logp_NV[:num_anchors]), -1)
    return np.stack([labels_QC[:, -1] - labels_QC[:, -2], distances_QA[:, _K] - distances_QA[:, _K - 1]])


CHECKS = (findings.Check("main job", run),)
