"""The pool as a method: it gives the predictions of `AutoClassifier` on the same rows."""

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax import tasks
from knnprompt_jax.methods import method
from knnprompt_jax.tasks import splits


@pytest.mark.parametrize("experts", [None, ("knn", "words")])
def test_the_method_is_the_classifier_on_all_rows_of_the_split(predict, tiny, experts):
    task = tasks.get("demo")
    split = splits.draw(tasks.load_rows(task, "train"), task, shots=5, demo_shots=2, seed=3)
    evaluation = tasks.load_rows(task, "dev_subsample")[:7]
    problem = method.Problem(task, split, evaluation, tiny.tokenize)
    prediction = predict("auto", problem, tiny, experts=experts)
    texts = [row.fields["sentence"] for row in problem.train_rows]
    classifier = kp.AutoClassifier(tiny, task, experts=experts, random_state=3)
    classifier.fit(texts, [row.label for row in problem.train_rows])
    expected_QC = classifier.predict_proba([row.fields["sentence"] for row in evaluation])
    np.testing.assert_allclose(prediction.probabilities_QC, expected_QC, atol=1e-4)
    np.testing.assert_array_equal(prediction.classes_Q, expected_QC.argmax(-1))
    assert prediction.note == classifier.choice_.line
    num_read = 30 if experts else 2 * 30 + 6  # Votes need no second view, and no names of classes.
    assert prediction.prompts == num_read + 7 * len(classifier.choice_.views)
