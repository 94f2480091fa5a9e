"""`compare` on the demo task over all devices against a CPU: every prediction that rounding does not decide."""

import dataclasses
import pathlib
import tempfile
from collections.abc import Iterator

import numpy as np

from knnprompt_jax import lm, parallel
from knnprompt_jax.check import findings, worlds
from knnprompt_jax.check import subject as subject_lib
from knnprompt_jax.methods import method
from knnprompt_jax.runs import comparison, inputs
from knnprompt_jax.settings import shared

_METHODS = ("icl", "knn")
_K = 3
_MARGIN = 2 * subject_lib.NATS  # Rounding may change both of two compared numbers.


def run(subject: subject_lib.Subject) -> Iterator[findings.Finding]:
    """Compare in-context learning and kNN Prompting with the tiny model in float32, row for row."""
    with tempfile.TemporaryDirectory() as folder:
        settings = shared.ComparisonSettings(
            model=subject_lib.TINY, methods=_METHODS, shots=4, demo_shots=1, seeds=(1,), cache_gb=0, output=folder
        )
        predicted = []
        for name, mesh in (("device", parallel.make_mesh()), ("cpu", subject.cpu)):
            own = dataclasses.replace(settings, output=str(pathlib.Path(folder) / name))
            model = subject.model(subject_lib.TINY, mesh)
            predicted.append(np.array([record.predicted for record in comparison.compare(own, model)]))
        [problem] = inputs.read_problems(settings, model)
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
    logp_NV = subject_lib.log_probabilities(subject_lib.head_rows(model), subject_lib.read(model, prompts))
    num_anchors = len(problem.split.anchors)
    logp_QV = logp_NV[num_anchors:]
    labels_QC = np.sort(logp_QV[:, problem.label_ids], -1)
    distances_QA = np.sort(worlds.divergences("kl", logp_QV, logp_NV[:num_anchors]), -1)
    return np.stack([labels_QC[:, -1] - labels_QC[:, -2], distances_QA[:, _K] - distances_QA[:, _K - 1]])


CHECKS = (findings.Check("main job", run),)
