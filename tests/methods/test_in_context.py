"""In-context learning after selected demonstrations, several sets and many, and by whole labels, against plain computations."""

import collections
import dataclasses
import types

import numpy as np
import pytest
import rank_bm25
from scipy import special

from knnprompt_jax import errors
from knnprompt_jax.methods import demonstrations, in_context, method, registry
from knnprompt_jax.models import encoders
from knnprompt_jax.prompts import layout
from knnprompt_jax.settings import methods
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
    return demonstrations.select(problem, methods.RetrievalOptions(**options))


def test_pool_is_the_whole_train_sample(weather):
    """As many rows as there are demonstrations in all, of whatever class, from demonstrations and anchors."""
    chosen = select(weather)
    pool = weather.train_rows
    assert len(pool) == 8
    bm25 = rank_bm25.BM25Okapi([row.fields["sentence"].split() for row in pool])
    for query, rows in zip(weather.evaluation, chosen, strict=True):
        scores = bm25.get_scores(query.fields["sentence"].split())
        best = sorted(range(8), key=lambda index: (-scores[index], index))[:2]
        assert rows == [pool[index] for index in best]
    reverse = select(weather, order="nearest_last")
    assert [rows[::-1] for rows in reverse] == chosen


def test_encoders_choose_by_cosine(weather, monkeypatch):
    """Vectors of any length: a long one is not nearer."""
    rng = np.random.default_rng(5)
    vectors = collections.defaultdict(lambda: rng.normal(size=7) * rng.uniform(0.1, 30))

    encoder = types.SimpleNamespace(encode=lambda texts: np.stack([vectors[text] for text in texts]), known={})
    loaded = {("some/encoder", "cls"): encoder}
    monkeypatch.setattr(encoders, "_load", lambda *recipe: loaded[recipe])
    chosen = select(weather, retriever="some/encoder", pooling="cls")
    for query, rows in zip(weather.evaluation, chosen, strict=True):
        q = vectors[query.fields["sentence"]]
        pool = np.stack([vectors[row.fields["sentence"]] for row in weather.train_rows])
        cosine = pool @ q / np.linalg.norm(q) / np.linalg.norm(pool, axis=1)
        assert rows == [weather.train_rows[index] for index in np.argsort(cosine)[::-1][:2]]


@pytest.mark.parametrize("order", methods.ORDERS)
def test_prediction(weather, predict, order):
    prediction = predict("prompt_compose_bm25", weather, whole_texts.model(), order=order)
    chosen = select(weather, order=order)
    for row, (query, rows) in enumerate(zip(weather.evaluation, chosen, strict=True)):
        want_C = whole_texts.icl(weather, rows, query)
        np.testing.assert_allclose(prediction.probabilities_QC[row], want_C, atol=1e-4)
        assert prediction.classes_Q[row] == want_C.argmax()
    assert prediction.note == "" and (prediction.prompts, prediction.truncated) == (4, 0)


def test_upper_bound(weather, predict):
    prediction = predict("demonstration_upper_bound", weather, whole_texts.model(), num_prompts=5)
    true_Q = np.array([int(example.label) for example in weather.evaluation])
    predicted = []
    for rows in demonstrations.random_sets(weather, 5):
        assert sorted(row.label for row in rows) == ["0", "1"] and all(row in weather.train_rows for row in rows)
        predicted.append([whole_texts.icl(weather, rows, query).argmax() for query in weather.evaluation])
    accuracies = (np.array(predicted) == true_Q).mean(1)
    np.testing.assert_array_equal(prediction.classes_Q, predicted[accuracies.argmax()])
    assert prediction.candidates == tuple(accuracies)
    assert "best of 5 random prompts, CHOSEN ON THE EVALUATION ROWS" in prediction.note
    few, many = ([*demonstrations.random_sets(weather, number)] for number in (3, 7))
    assert many[:3] == few and len({tuple(row.row for row in rows) for rows in many}) > 3


@pytest.mark.parametrize(
    ("name", "shots", "message"),
    [
        ("icl_ensemble", (2, 1), "shots=3: two sets of demo_shots=2 need 4 shots or more, or demo_shots of 1 or fewer"),
        ("icl_ensemble", (0, 3), "demo_shots=0: an ensemble needs sets"),
        ("prompt_compose_bm25", (0, 3), "demo_shots=0 leaves no demonstrations to select"),
        ("demonstration_upper_bound", (0, 3), "demo_shots=0 leaves no demonstrations to select"),
    ],
)
def test_too_few_shots(name, shots, message):
    with pytest.raises(errors.UserError, match=f"'{name}' does not apply: {message}"):
        registry.select([name], whole_texts.trec(*shots))


def counts(rows):
    return collections.Counter(row.label for row in rows)


@pytest.mark.parametrize(("demo_shots", "anchor_shots", "sets"), [(1, 1, 2), (2, 5, 3), (3, 6, 3), (2, 3, 2)])
def test_sets_are_disjoint_and_have_as_many_rows_a_class(demo_shots, anchor_shots, sets):
    split = whole_texts.trec(demo_shots, anchor_shots).split
    made = demonstrations.ensemble_sets(split)
    assert len(made) == sets and made[0] == list(split.demonstrations)
    rows = [row.row for own in made for row in own]
    assert len(set(rows)) == len(rows)
    assert all(counts(own) == dict.fromkeys(whole_texts.TREC.labels, demo_shots) for own in made)
    order = {row.row: place for place, row in enumerate(split.anchors)}
    assert all(own == sorted(own, key=lambda row: order[row.row]) for own in made[1:])


def test_a_class_that_runs_out_is_missing_from_later_sets():
    split = whole_texts.trec(2, 6).split
    scarce = [row for row in split.anchors if row.label == "2"]
    kept = tuple(row for row in split.anchors if row.label != "2" or row in scarce[:3])
    made = demonstrations.ensemble_sets(dataclasses.replace(split, anchors=kept))
    assert [counts(own)["2"] for own in made] == [2, 2, 1, 0]
    assert [counts(own)["1"] for own in made] == [2, 2, 2, 2]


def test_combinations():
    p_UQC = np.array([[[0.6, 0.3, 0.1], [0.2, 0.5, 0.3]], [[0.1, 0.4, 0.5], [0.2, 0.5, 0.3]]])
    log_p_UQC = np.log(p_UQC)
    np.testing.assert_allclose(demonstrations.combine(log_p_UQC, "probability"), p_UQC.mean(0))
    product_QC = np.sqrt(p_UQC.prod(0))
    np.testing.assert_allclose(
        demonstrations.combine(log_p_UQC, "log_probability"), product_QC / product_QC.sum(-1, keepdims=True)
    )
    votes_QC = demonstrations.combine(log_p_UQC, "vote")
    np.testing.assert_allclose(votes_QC, [[0.5, 0, 0.5], [0, 1, 0]])
    assert votes_QC.argmax(-1).tolist() == [0, 1], "the lowest class wins a tie"
    certain_UQC = np.array([[[0.0, -800.0]], [[0.0, -900.0]]])
    for combination in methods.COMBINATIONS:
        assert np.isfinite(demonstrations.combine(certain_UQC, combination)).all()


def test_each_set_read_alone(predict):
    """Whole prompts through the plain pass; they are longer than the context and keep their last tokens."""
    problem = whole_texts.trec(2, 5)
    result = predict("icl_ensemble", problem, whole_texts.model())
    sets = demonstrations.ensemble_sets(problem.split)
    p_UQC = [[whole_texts.icl(problem, rows, query) for query in problem.evaluation] for rows in sets]
    want_QC = np.mean(p_UQC, axis=0)
    np.testing.assert_allclose(result.probabilities_QC, want_QC, atol=3e-5)
    np.testing.assert_array_equal(result.classes_Q, want_QC.argmax(-1))
    assert result.note == "3 sets of 12 demonstrations" and (result.prompts, result.truncated) == (6, 6)


@pytest.mark.parametrize(
    ("context", "most", "shown"),
    # 18 rows of 10 tokens and one for the blank line, after 1 special token and before a query of 10.
    [(11 + 4 * 11, 0, 4), (11 + 5 * 11 - 1, 0, 4), (1000, 0, 18), (1000, 7, 7), (12, 0, 0), (5, 0, 0)],
)
def test_as_many_as_leave_room(monkeypatch, context, most, shown):
    problem = whole_texts.trec(1, 2)
    monkeypatch.setattr(method.Problem, "num_special", 1)
    counter = method.TokenCounter(lambda texts: np.full(len(texts), 10), context)
    rows = demonstrations.many_shot_rows(problem, counter, methods.ManyShotOptions(most=most))
    # Where a query is too long even alone, the whole context is for demonstrations; here that holds none.
    assert len(rows) == shown
    every = demonstrations.many_shot_rows(
        problem, method.TokenCounter(counter.lengths, 1000), methods.ManyShotOptions()
    )
    assert rows == every[:shown] and sorted(row.row for row in every) == sorted(row.row for row in problem.train_rows)
    assert [row.row for row in every] != [row.row for row in problem.train_rows]


def test_predicts_as_whole_texts_do(predict):
    problem, model = whole_texts.trec(1, 2), whole_texts.model()
    result = predict("icl_many_shot", problem, model)
    counter = method.TokenCounter(lambda texts: layout.count_tokens(problem.tokenize, texts), model.context)
    shown = demonstrations.many_shot_rows(problem, counter, methods.ManyShotOptions())
    assert 0 < len(shown) < 18 and result.note == f"{len(shown)} demonstrations"
    want_QC = [whole_texts.icl(problem, shown, query) for query in problem.evaluation]
    np.testing.assert_allclose(result.probabilities_QC, want_QC, atol=3e-5)
    assert (result.prompts, result.truncated) == (3, 0)


WORDS = ("old town", "river", "old town hall", "new ferry")
TASK = Task("places", ("text",), "Text: {text}\nKind:", ("0", "1", "2", "3"), WORDS)


def of_places(demo_shots=1, task=TASK):
    return whole_texts.make_problem(task, demo_shots, 1, whole_texts.queries(task, 3))


def whole_label_scores(problem):
    """log p [Q, C]: the first token after the prompt's last tokens, the others after as many as then fit."""
    task, context = problem.task, whole_texts.CONTEXT
    head = "".join(task.render(row, row.label) + "\n" for row in problem.split.demonstrations)
    scores_QC = np.zeros((len(problem.evaluation), task.num_classes))
    for row, query in enumerate(problem.evaluation):
        prompt = whole_texts.tokens(head + task.render(query))
        for label, word in enumerate(task.label_words):
            first, *rest = whole_texts.tokens(f" {word}")
            scores_QC[row, label] = whole_texts.log_p(prompt[-context:], [first]).sum()
            if rest:
                before = [*prompt, first][-(context + 1 - len(rest)) :]
                scores_QC[row, label] += whole_texts.log_p(before, rest).sum()
    return scores_QC


@pytest.mark.parametrize("demo_shots", [0, 1, 5])
def test_sums_over_tokens(demo_shots, predict):
    """Labels share first tokens, one is the beginning of another; with 5 demonstrations prompts exceed the context."""
    problem = of_places(demo_shots)
    lengths = [len(tokens) for tokens in in_context.label_tokens(problem)]
    assert min(lengths) >= 1 and max(lengths) > min(lengths)
    want_QC = whole_label_scores(problem)
    result = predict("icl_multi_token", problem, whole_texts.model())
    np.testing.assert_allclose(result.probabilities_QC, special.softmax(want_QC, axis=-1), atol=3e-5)
    np.testing.assert_array_equal(result.classes_Q, want_QC.argmax(-1))
    assert result.prompts == sum(length > 1 for length in lengths) * 3 and (result.truncated > 0) == (demo_shots == 5)


def test_labels_of_one_token_cost_no_pass(predict):
    words = [word for word in ("one", "two", "old", "new", "house") if len(whole_texts.tokens(f" {word}")) == 1][:3]
    task = dataclasses.replace(TASK, labels=("0", "1", "2"), label_words=tuple(words))
    ours, published = (predict(name, of_places(task=task), whole_texts.model()) for name in ("icl_multi_token", "icl"))
    np.testing.assert_allclose(ours.probabilities_QC, published.probabilities_QC, atol=1e-5)
    assert ours.prompts == 0


def test_label_words_of_the_same_tokens(problem):
    """Words that end alike are told apart; in-context learning reads the last token and refuses them."""

    def with_words(*words):
        return dataclasses.replace(problem, task=dataclasses.replace(problem.task, label_words=words))

    assert registry.select(["icl_multi_token"], with_words("ax", "bx", "cx"))[0]
    folded = dataclasses.replace(
        with_words("Yes", "no", "yes"), tokenize=lambda texts: [[ord(c) for c in text.lower()] for text in texts]
    )
    with pytest.raises(errors.UserError, match="does not apply: .* 'Yes' and 'yes' have the same tokens"):
        registry.select(["icl_multi_token"], folded)
