"""In-context learning after selected demonstrations, several sets and many, against plain computations."""

import collections
import dataclasses

import numpy as np
import pytest
import rank_bm25

from knnprompt_jax.methods import demonstrations, method
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task
from tests.methods import whole_texts

SENTENCES = [
    *["the sun is warm", "The sun sets", "cold rain and cold wind", "a grey day", "the rain , the wind , the storm"],
    *["warm and clear", "clear sun", "grey grey grey", "storm at sea", "the day is the day is the day"],
]


@pytest.fixture(scope="module")
def weather() -> method.Problem:
    task = Task("weather", ("sentence",), "Say: {sentence}\nMood:", ("0", "1"), ("bad", "fine"))
    train = [Example({"sentence": text}, str(number % 2), number) for number, text in enumerate(SENTENCES)]
    split = splits.draw(train, task, shots=4, demo_shots=1, seed=3)
    texts = ["the warm sun", "wind , rain", "nothing known", "a day"]
    evaluation = [Example({"sentence": text}, str(row % 2), row) for row, text in enumerate(texts)]
    return method.Problem(task, split, evaluation, whole_texts.model().tokenize)


def select(problem: method.Problem, **options: str) -> list[list[Example]]:
    return demonstrations.select(problem, demonstrations.RetrievalOptions(**options))


def sentences(rows):
    return [row.fields["sentence"] for row in rows]


def test_bm25_selects_from_the_whole_train_sample(weather):
    """It selects as many rows as there are demonstrations in all, of any class, from demonstrations and anchors."""
    pool = weather.train_rows
    index = rank_bm25.BM25Okapi([text.split() for text in sentences(pool)])
    for text, rows in zip(sentences(weather.evaluation), select(weather), strict=True):
        best = np.argsort(-index.get_scores(text.split()), kind="stable")[:2]
        assert rows == [pool[row] for row in best]


def test_encoders_select_by_cosine(weather, embed):
    selected = select(weather, retriever="my_encoder")
    cosines_QN = embed(sentences(weather.evaluation)) @ embed(sentences(weather.train_rows)).T
    for cosines_N, rows in zip(cosines_QN, selected, strict=True):
        assert rows == [weather.train_rows[row] for row in np.argsort(-cosines_N)[:2]]


def test_each_query_follows_its_own_demonstrations(weather, predict):
    prediction = predict("prompt_compose_bm25", weather, whole_texts.model())
    pairs = zip(weather.evaluation, select(weather), strict=True)
    want_QC = np.array([whole_texts.icl(weather, rows, query) for query, rows in pairs])
    np.testing.assert_allclose(prediction.probabilities_QC, want_QC, atol=1e-4)
    np.testing.assert_array_equal(prediction.classes_Q, want_QC.argmax(-1))
    assert (prediction.prompts, prediction.truncated) == (4, 0)


def counts(rows):
    return collections.Counter(row.label for row in rows)


@pytest.mark.parametrize(("demo_shots", "anchor_shots", "num_sets"), [(1, 1, 2), (2, 5, 3)])
def test_sets_are_disjoint_and_have_as_many_rows_per_class(demo_shots, anchor_shots, num_sets):
    split = whole_texts.trec(demo_shots, anchor_shots).split
    sets = demonstrations.ensemble_sets(split)
    assert len(sets) == num_sets
    assert sets[0] == list(split.demonstrations)
    all_rows = [row.row for rows in sets for row in rows]
    assert len(set(all_rows)) == len(all_rows)
    assert all(counts(rows) == dict.fromkeys(whole_texts.TREC.labels, demo_shots) for rows in sets)
    index_of = {row.row: index for index, row in enumerate(split.anchors)}
    assert all(rows == sorted(rows, key=lambda row: index_of[row.row]) for rows in sets[1:])


def test_a_class_without_further_rows_is_missing_from_later_sets():
    split = whole_texts.trec(2, 6).split
    scarce = [row for row in split.anchors if row.label == "2"]
    kept = tuple(row for row in split.anchors if row.label != "2" or row in scarce[:3])
    sets = demonstrations.ensemble_sets(dataclasses.replace(split, anchors=kept))
    assert [counts(rows)["2"] for rows in sets] == [2, 2, 1, 0]
    assert [counts(rows)["1"] for rows in sets] == [2, 2, 2, 2]


def test_an_ensemble_averages_the_predictions_after_each_set(predict):
    """Prompts are longer than the context and keep their last tokens."""
    problem = whole_texts.trec(2, 5)
    prediction = predict("icl_ensemble", problem, whole_texts.model())
    sets = demonstrations.ensemble_sets(problem.split)
    p_UQC = [[whole_texts.icl(problem, rows, query) for query in problem.evaluation] for rows in sets]
    want_QC = np.mean(p_UQC, axis=0)
    np.testing.assert_allclose(prediction.probabilities_QC, want_QC, atol=3e-5)
    np.testing.assert_array_equal(prediction.classes_Q, want_QC.argmax(-1))
    assert prediction.note == "3 sets of 12 demonstrations"
    assert (prediction.prompts, prediction.truncated) == (6, 6)


@pytest.mark.parametrize(
    ("context", "count"),
    # 18 rows have 10 tokens each and one for the blank line. 1 special token precedes them, and a query of 10 follows.
    # In 5 tokens no query fits, so that the whole context is for demonstrations; it holds none.
    [(11 + 4 * 11, 4), (11 + 5 * 11 - 1, 4), (1000, 18), (12, 0), (5, 0)],
)
def test_many_shots_leave_room_for_the_longest_query(context, count):
    problem = whole_texts.trec(1, 2)
    problem = dataclasses.replace(problem, tokenize=lambda texts: [[1] for _ in texts])  # One special token.

    def rows_within(limit):
        return demonstrations.many_shot_rows(problem, lambda texts: np.full(len(texts), 10), limit)

    shuffled = rows_within(1000)
    assert sorted(row.row for row in shuffled) == sorted(row.row for row in problem.train_rows)
    assert shuffled != problem.train_rows
    assert rows_within(context) == shuffled[:count]


def test_many_shots_predict_as_one_long_prompt(predict):
    problem = whole_texts.trec(1, 2)
    model = whole_texts.model()
    prediction = predict("icl_many_shot", problem, model)
    rows = demonstrations.many_shot_rows(problem, model.count_tokens, model.context)
    assert 0 < len(rows) < 18
    want_QC = [whole_texts.icl(problem, rows, query) for query in problem.evaluation]
    np.testing.assert_allclose(prediction.probabilities_QC, want_QC, atol=3e-5)
    assert prediction.note == f"{len(rows)} demonstrations"
    assert (prediction.prompts, prediction.truncated) == (3, 0)


def test_the_upper_bound_is_the_most_accurate_random_prompt(weather, predict):
    prediction = predict("demonstration_upper_bound", weather, whole_texts.model(), num_prompts=5)
    true_Q = np.array([int(example.label) for example in weather.evaluation])
    predicted = []
    sets = [*demonstrations.random_sets(weather, 5)]
    assert [*demonstrations.random_sets(weather, 3)] == sets[:3] and sets[0] != sets[1]
    for rows in sets:
        assert sorted(row.label for row in rows) == ["0", "1"]
        assert all(row in weather.train_rows for row in rows)
        predicted.append([whole_texts.icl(weather, rows, query).argmax() for query in weather.evaluation])
    accuracies = (np.array(predicted) == true_Q).mean(1)
    np.testing.assert_array_equal(prediction.classes_Q, predicted[accuracies.argmax()])
    assert prediction.candidates == tuple(accuracies)
    assert "best of 5 random prompts, CHOSEN ON THE EVALUATION ROWS" in prediction.note
