"""Methods in scikit-learn's words: the same as through the shared pass, whether they read states or have passes of their own."""

import numpy as np
import pytest

from knnprompt_jax import errors, lm
from knnprompt_jax.methods import estimator, method, registry
from knnprompt_jax.tasks import catalogue
from tests.methods import whole_texts

TREC = catalogue.get("trec")
OPTIONS = {"knn": {"k": 1}, "noisy_channel": {"template": 2}, "icl_ensemble": {"combination": "vote"}}


@pytest.fixture
def problem():
    return whole_texts.make_problem(TREC, 1, 2, whole_texts.queries(TREC, 5))


@pytest.mark.parametrize("name", ["icl", *OPTIONS])
def test_the_same_as_through_the_shared_pass(problem, name, monkeypatch):
    options = OPTIONS.get(name, {})
    want = whole_texts.run(problem, name, **options)
    fitted = estimator.Estimator(whole_texts.model(), TREC, name, **options).fit(problem.split)
    np.testing.assert_array_equal(fitted.predict(problem.evaluation), want.classes_Q)
    for function in ("states", "log_likelihoods"):
        monkeypatch.setattr(lm.LanguageModel, function, None)  # The same examples are read once.
    np.testing.assert_array_equal(fitted.predict_proba(problem.evaluation), want.probabilities_QC)
    true_Q = [TREC.class_index(query.label) for query in problem.evaluation]
    assert fitted.score(problem.evaluation) == np.mean(want.classes_Q == true_Q)
    assert fitted.classes_.tolist() == list(range(6))


def test_other_examples_are_read(problem):
    fitted = estimator.Estimator(whole_texts.model(), TREC, "icl").fit(problem.split)
    both = fitted.predict_proba(problem.evaluation)
    np.testing.assert_allclose(fitted.predict_proba(problem.evaluation[3:]), both[3:], atol=1e-5)


def test_mistakes(problem, monkeypatch):
    with pytest.raises(errors.UserError, match="unknown method 'bert': choose from icl"):
        estimator.Estimator(whole_texts.model(), TREC, "bert")
    with pytest.raises(errors.UserError, match="method 'icl' has no option 'k': choose from none"):
        estimator.Estimator(whole_texts.model(), TREC, "icl", k=3)
    own = method.Method("own", "Own", lambda context: method.Prediction(np.zeros(5, int)))
    monkeypatch.setitem(registry.METHODS, "own", own)
    with pytest.raises(errors.UserError, match="method 'own' gives classes without probabilities"):
        estimator.Estimator(whole_texts.model(), TREC, "own").fit(problem.split).predict_proba(problem.evaluation)
