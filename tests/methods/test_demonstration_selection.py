"""Each query's demonstrations, and what in-context learning makes of them, against plain computations."""

import collections
import types

import numpy as np
import pytest
import rank_bm25

from knnprompt_jax import errors
from knnprompt_jax.methods import demonstration_selection, demonstration_sets, method, registry
from knnprompt_jax.models import encoders
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task
from tests.methods import whole_texts

SENTENCES = [
    *["the sun is warm", "The sun sets", "cold rain and cold wind", "a grey day", "the rain , the wind , the storm"],
    *["warm and clear", "clear sun", "grey grey grey", "storm at sea", "the day is the day is the day"],
]


@pytest.fixture(scope="module")
def problem() -> method.Problem:
    task = Task("weather", ("sentence",), "Say: {sentence}\nMood:", ("0", "1"), ("bad", "fine"))
    train = [Example({"sentence": text}, str(number % 2), number) for number, text in enumerate(SENTENCES)]
    split = splits.draw(train, task, shots=4, demo_shots=1, seed=3)
    texts = ["the warm sun", "wind , rain", "nothing known", "a day"]
    evaluation = [Example({"sentence": text}, str(row % 2), row) for row, text in enumerate(texts)]
    return method.Problem(task, split, evaluation, whole_texts.model().tokenize)


def select(problem: method.Problem, **options: str) -> list[list[Example]]:
    return demonstration_selection.select(problem, demonstration_selection.Settings(**options))


@pytest.mark.parametrize(
    ("order", "want"), [("nearest_first", [[2, 0, 3], [1, 0, 2]]), ("nearest_last", [[3, 0, 2], [2, 0, 1]])]
)
def test_nearest(order, want):
    similarities_QN = np.array([[0.5, 0.1, 0.9, 0.5], [0.7, 0.9, 0.7, 0.7]])
    np.testing.assert_array_equal(demonstration_selection.nearest(similarities_QN, 3, order), want)


def test_pool_is_the_whole_train_sample(problem):
    """As many rows as there are demonstrations in all, of whatever class, from demonstrations and anchors."""
    chosen = select(problem)
    pool = problem.train_rows
    assert len(pool) == 8
    bm25 = rank_bm25.BM25Okapi([row.fields["sentence"].split() for row in pool])
    for query, rows in zip(problem.evaluation, chosen, strict=True):
        scores = bm25.get_scores(query.fields["sentence"].split())
        best = sorted(range(8), key=lambda index: (-scores[index], index))[:2]
        assert rows == [pool[index] for index in best]
    reverse = select(problem, order="nearest_last")
    assert [rows[::-1] for rows in reverse] == chosen


def test_encoders_choose_by_cosine(problem, monkeypatch):
    """Vectors of any length: a long one is not nearer."""
    rng = np.random.default_rng(5)
    vectors = collections.defaultdict(lambda: rng.normal(size=7) * rng.uniform(0.1, 30))

    encoder = types.SimpleNamespace(encode=lambda texts: np.stack([vectors[text] for text in texts]))
    loaded = {("some/encoder", "cls"): encoder}
    monkeypatch.setattr(encoders.SentenceEncoder, "from_pretrained", lambda *recipe: loaded[recipe])
    chosen = select(problem, retriever="some/encoder", pooling="cls")
    for query, rows in zip(problem.evaluation, chosen, strict=True):
        q = vectors[query.fields["sentence"]]
        pool = np.stack([vectors[row.fields["sentence"]] for row in problem.train_rows])
        cosine = pool @ q / np.linalg.norm(q) / np.linalg.norm(pool, axis=1)
        assert rows == [problem.train_rows[index] for index in np.argsort(cosine)[::-1][:2]]


@pytest.mark.parametrize("order", demonstration_selection.ORDERS)
def test_prediction(problem, predict, order):
    prediction = predict("prompt_compose_bm25", problem, whole_texts.model(), order=order)
    chosen = select(problem, order=order)
    for row, (query, rows) in enumerate(zip(problem.evaluation, chosen, strict=True)):
        want_C = whole_texts.icl(problem, rows, query)
        np.testing.assert_allclose(prediction.probabilities_QC[row], want_C, atol=1e-4)
        assert prediction.classes_Q[row] == want_C.argmax()
    assert prediction.note == "" and (prediction.prompts, prediction.truncated) == (4, 0)


def test_upper_bound(problem, predict):
    prediction = predict("demonstration_upper_bound", problem, whole_texts.model(), num_prompts=5)
    true_Q = np.array([int(example.label) for example in problem.evaluation])
    predicted = []
    for rows in demonstration_sets.random_sets(problem, 5):
        assert sorted(row.label for row in rows) == ["0", "1"] and all(row in problem.train_rows for row in rows)
        predicted.append([whole_texts.icl(problem, rows, query).argmax() for query in problem.evaluation])
    accuracies = (np.array(predicted) == true_Q).mean(1)
    np.testing.assert_array_equal(prediction.classes_Q, predicted[accuracies.argmax()])
    assert prediction.candidates == tuple(accuracies)
    assert "best of 5 random prompts, CHOSEN ON THE EVALUATION ROWS" in prediction.note


def test_draws_are_seeded(problem):
    few, many = ([*demonstration_sets.random_sets(problem, number)] for number in (3, 7))
    assert many[:3] == few
    assert len({tuple(row.row for row in rows) for rows in many}) > 3


def test_does_not_apply_without_demonstrations(problem):
    split = splits.draw(problem.train_rows, problem.task, shots=2, demo_shots=0, seed=1)
    without = method.Problem(problem.task, split, problem.evaluation, problem.tokenize)
    for one in (*demonstration_selection.METHODS, registry.get("demonstration_upper_bound")):
        with pytest.raises(errors.UserError, match="demo_shots=0 leaves no demonstrations to select"):
            one.check(without)
        one.check(problem)
