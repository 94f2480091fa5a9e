"""The pool as a method: it gives the predictions of `AutoClassifier` on the same rows."""

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax import tasks
from knnprompt_jax.experts import views
from knnprompt_jax.methods import method, registry
from knnprompt_jax.settings import classifiers
from knnprompt_jax.tasks import splits


@pytest.mark.parametrize("experts", [None, ("knn", "words")])
def test_the_method_is_the_classifier_on_all_rows_of_the_split(predict, experts):
    model = kp.demo_model("tiny")
    task = tasks.get("demo")
    split = splits.draw(tasks.load_rows(task, "train"), task, shots=5, demo_shots=2, seed=3)
    evaluation = tasks.load_rows(task, "dev_subsample")[:7]
    problem = method.Problem(task, split, evaluation, model.tokenize)
    prediction = predict("auto", problem, model, experts=experts)
    texts = [row.fields["sentence"] for row in problem.train_rows]
    classifier = kp.AutoClassifier(model, task, experts=experts, random_state=3)
    classifier.fit(texts, [row.label for row in problem.train_rows])
    expected_QC = classifier.predict_proba([row.fields["sentence"] for row in evaluation])
    np.testing.assert_allclose(prediction.probabilities_QC, expected_QC, atol=1e-4)
    np.testing.assert_array_equal(prediction.classes_Q, expected_QC.argmax(-1))
    assert prediction.note == classifier.choice_.line
    assert prediction.prompts == 2 * 30 + 7 * len(classifier.choice_.views)


@pytest.mark.parametrize(("shots", "num_prefixes"), [(1, 0), (2, 3), (3, 4), (5, 3)])
def test_the_cost_counts_the_prefix_of_each_fold(shots, num_prefixes):
    """Two demonstrations per class are in two folds, or read after as many others, if there are any.

    Tokens are a few too many for each prompt, because common beginnings are read only once.
    """
    model = kp.demo_model("tiny")
    task = tasks.get("demo")
    split = splits.draw(tasks.load_rows(task, "train"), task, shots=shots, demo_shots=0, seed=3)
    evaluation = tasks.load_rows(task, "dev_subsample")[:7]
    problem = method.Problem(task, split, evaluation, model.tokenize)
    rows = problem.train_rows
    counter = method.TokenCounter(model.count_tokens, model.context)
    cost = registry.get("auto").cost(problem, counter, classifiers.PoolOptions())
    reader = views.PromptReader(model, task, "left", None)
    sets = []
    for number in views.default_numbers(task, rows, model.count_tokens, model.context, split.seed):
        view = views.deal(rows, number, split.seed)
        sets += reader.build_view(rows, view.groups)
        sets.append(reader.build(evaluation, [rows[index] for index in view.demonstrations]))
    lengths = [len(prompts.groups[0].prefix_P) for prompts in sets]
    assert sum(length > 100 for length in lengths) == num_prefixes
    assert cost.prompts == sum(prompts.num_prompts for prompts in sets)
    assert 1 <= cost.tokens / sum(prompts.num_tokens for prompts in sets) < 1.15
