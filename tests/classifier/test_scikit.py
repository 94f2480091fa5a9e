"""The classifier in scikit-learn's own hands."""

import numpy as np
import pytest
from sklearn import base, model_selection, utils
from sklearn.utils import validation

import knnprompt_jax as kp
from knnprompt_jax.classifier import estimator
from knnprompt_jax.inference import states


@pytest.fixture(scope="module")
def unfitted(model, task):
    return kp.KNNPrompting(model, task, demo_shots=0)


def test_a_clone_shares_the_model_and_nothing_fitted(fitted):
    clone = base.clone(fitted)
    assert clone.model is fitted.model and clone.get_params() == fitted.get_params()
    with pytest.raises(validation.NotFittedError):
        validation.check_is_fitted(clone)
    validation.check_is_fitted(fitted)
    assert base.is_classifier(fitted) and utils.get_tags(fitted).input_tags.string


def test_a_search_over_k_reads_each_prompt_once(unfitted, rows, model, monkeypatch):
    monkeypatch.setattr(estimator, "_CACHE", states.MemoryCache(2**28))
    X, y = rows
    folds = model_selection.KFold(3)
    before = model.statistics.prompts
    options = {"cv": folds, "refit": False, "error_score": "raise"}
    search = model_selection.GridSearchCV(unfitted, {"k": [1, 3, 5]}, **options).fit(X, y)
    assert model.statistics.prompts - before == len(X)  # Folds share their prompts.
    for k, scores in zip((1, 3, 5), search.cv_results_["mean_test_score"], strict=True):
        expected = model_selection.cross_val_score(base.clone(unfitted).set_params(k=k), X, y, cv=folds)
        assert scores == pytest.approx(expected.mean())


def test_each_fit_infers_a_task_that_is_not_given(model, rows):
    X, y = rows[0][:20], ["a", "b"] * 10
    task = kp.Task.infer(X, y)
    classifier = kp.KNNPrompting(model, demo_shots=0).fit(X, y)
    assert classifier.task_ == task and base.clone(classifier).task is None
    assert classifier.fit(X, rows[1][:20]).classes_.tolist() == sorted(set(rows[1][:20])), "other labels"
    classifier.set_params(task=task).fit(X, y)
    assert classifier.task_ == classifier.task == base.clone(classifier).task == task


def test_a_fit_that_fails_leaves_the_earlier_one(model, rows):
    classifier = kp.KNNPrompting(model, k=3, demo_shots=0).fit(rows[0][:20], ["a", "b"] * 10)
    before = classifier.predict(rows[0][20:31])
    with pytest.raises(kp.UserError, match="k=3: there are 2 anchors"):
        classifier.fit(["one", "two"], ["d", "e"])
    assert classifier.task_.labels == ("a", "b") and classifier.classes_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(classifier.predict(rows[0][20:31]), before)
