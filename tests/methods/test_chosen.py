"""The classifier of people as a method: what it says of synthetic states, whose classes are known."""

import dataclasses

import numpy as np
import pytest

from knnprompt_jax.methods import method, registry
from knnprompt_jax.store.store import StoreOptions
from knnprompt_jax.tasks.splits import FewShotSplit
from knnprompt_jax.tasks.task import Example, Task
from tests.methods.test_knn import WORDS, Model


@pytest.fixture(scope="module")
def context(synthetic):
    """Labels in another order than sorted, so that columns may not be confused."""
    task = Task("five", ("text",), "{text}:", tuple("42310"), WORDS)
    ids = dict(zip(WORDS, synthetic.label_ids, strict=True))
    anchors = tuple(Example({"text": f"a{row}"}, "42310"[label], row) for row, label in enumerate(synthetic.y))
    queries = [Example({"text": f"q{row}"}, "0", row) for row in range(len(synthetic.queries))]
    split = FewShotSplit((), anchors, seed=1, shots=21, demo_shots=0, class_counts={}, warnings=())
    problem = method.Problem(task, split, queries, lambda texts: [[ids[text[1:]]] if text else [] for text in texts])
    states = {method.anchors: synthetic.anchors, method.queries: synthetic.queries}
    return method.Context(problem, Model(synthetic.head, problem.tokenize), states, StoreOptions())


@pytest.mark.parametrize("name", ["chosen", "knn_chosen"])
def test_classes_are_found_and_the_note_says_by_what(context, name):
    declared = registry.get(name)
    said = declared.run(context, declared.settings())
    assert np.mean(said.classes_Q == np.arange(13) % 5) > 0.9
    np.testing.assert_array_equal(said.probabilities_QC.argmax(-1), said.classes_Q)
    assert said.note.startswith("chosen: rule=") and (name == "chosen" or "rule=knn" in said.note)


def test_a_plain_vote_is_that_of_knn(context):
    chosen, knn = registry.get("chosen"), registry.get("knn")
    plain = dataclasses.replace(chosen.settings(), k=5, distance="forward", calibrated=False)
    ours = chosen.run(context, plain)
    theirs = knn.run(context, dataclasses.replace(knn.settings(), k=5))
    np.testing.assert_array_equal(ours.classes_Q, theirs.classes_Q)
    np.testing.assert_allclose(ours.probabilities_QC, theirs.probabilities_QC)
