"""On real rows with the shipped model, the kind of datastore and the place of its anchors change no prediction."""

import shutil

import numpy as np
import pytest

from knnprompt_jax import lm
from knnprompt_jax.methods import knn_prompting
from knnprompt_jax.runs import preparation, settings

ROWS = 64


@pytest.fixture(scope="module", params=["trec", "mr"])
def read(request, shared, tmp_path_factory):
    """The task's states, their classes and what to make a classifier of: 16 shots a class, 64 test rows."""
    folder, task = tmp_path_factory.mktemp("data"), request.param
    (folder / task).mkdir()
    shutil.copy(shared / "data" / task / "train.jsonl", folder / task)
    lines = (shared / "data" / task / "dev_subsample.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / task / "dev_subsample.jsonl").write_text("".join(lines[:ROWS]), encoding="utf-8")
    job = settings.RunSettings(model="tiny", task=task, data_dir=str(folder), shots=16, demo_shots=2, seeds=(1,))
    prepared = preparation.prepare(job)
    model = lm.LanguageModel.from_pretrained("tiny")
    [run] = prepared.runs
    y = np.array([prepared.task.class_index(example.label) for example in run.examples])
    return model, prepared.label_ids, model.states(run.prompts), y


def divergences(head, anchors, queries, direction):
    """KL [Q, N] in float64."""

    def log_probabilities(states):
        logits_NV = np.asarray(states.hidden_NE, np.float64) @ np.asarray(head.rows_VE, np.float64).T
        logits_NV -= logits_NV.max(-1, keepdims=True)
        return logits_NV - np.log(np.exp(logits_NV).sum(-1, keepdims=True))

    logk_NV, logp_QV = log_probabilities(anchors), log_probabilities(queries)
    if direction == "forward":
        return (np.exp(logp_QV) * logp_QV).sum(-1)[:, None] - np.exp(logp_QV) @ logk_NV.T
    return (np.exp(logk_NV) * logk_NV).sum(-1) - logp_QV @ np.exp(logk_NV).T


@pytest.mark.parametrize("direction", ["forward", "released"])
@pytest.mark.parametrize("k", [1, 3])
def test_factored_predictions_are_the_dense_ones(read, direction, k):
    """Wherever float64 tells the k-th anchor from the next by more than float32 mistakes."""
    model, label_ids, states, y = read
    anchors, queries = states[: len(y) - ROWS], states[len(y) - ROWS :]
    sorted_QN = np.sort(divergences(model.head, anchors, queries, direction))
    certain_Q = sorted_QN[:, k] - sorted_QN[:, k - 1] > 2e-4
    assert certain_Q.mean() > 0.5
    found = []
    for options in ({}, {"kind": "factored"}, {"kind": "factored", "on_host": True}):
        classifier = knn_prompting.KNNPrompting(model.head, label_ids, k=k, direction=direction, **options)
        found.append(classifier.fit(anchors, y[: len(anchors)]).predict(queries))
    np.testing.assert_array_equal(found[1][certain_Q], found[0][certain_Q])
    np.testing.assert_array_equal(found[2][certain_Q], found[0][certain_Q])
    assert len(set(found[0].tolist())) > 1
