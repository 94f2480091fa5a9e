"""The ensemble and many shots: their sets of demonstrations, and predictions from whole texts read one at a time."""

import collections
import dataclasses

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.methods import demonstration_sets, method, registry
from knnprompt_jax.prompts import layout
from knnprompt_jax.tasks import catalogue
from tests.methods import whole_texts

TREC = catalogue.get("trec")


def make_problem(demo_shots, anchor_shots, count=3):
    return whole_texts.make_problem(TREC, demo_shots, anchor_shots, whole_texts.queries(TREC, count))


def counts(rows):
    return collections.Counter(row.label for row in rows)


@pytest.mark.parametrize(("demo_shots", "anchor_shots", "sets"), [(1, 1, 2), (2, 5, 3), (3, 6, 3), (2, 3, 2)])
def test_sets_are_disjoint_and_have_as_many_rows_a_class(demo_shots, anchor_shots, sets):
    split = make_problem(demo_shots, anchor_shots).split
    made = demonstration_sets.ensemble_sets(split)
    assert len(made) == sets and made[0] == list(split.demonstrations)
    rows = [row.row for own in made for row in own]
    assert len(set(rows)) == len(rows)
    assert all(counts(own) == dict.fromkeys(TREC.labels, demo_shots) for own in made)
    order = {row.row: place for place, row in enumerate(split.anchors)}
    assert all(own == sorted(own, key=lambda row: order[row.row]) for own in made[1:])


def test_a_class_that_runs_out_is_missing_from_later_sets():
    split = make_problem(2, 6).split
    scarce = [row for row in split.anchors if row.label == "2"]
    kept = tuple(row for row in split.anchors if row.label != "2" or row in scarce[:3])
    made = demonstration_sets.ensemble_sets(dataclasses.replace(split, anchors=kept))
    assert [counts(own)["2"] for own in made] == [2, 2, 1, 0]
    assert [counts(own)["1"] for own in made] == [2, 2, 2, 2]
    only = dataclasses.replace(split, anchors=tuple(scarce[:3]))
    assert [len(own) for own in demonstration_sets.ensemble_sets(only)] == [12, 2, 1]


def test_combinations():
    p_UQC = np.array([[[0.6, 0.3, 0.1], [0.2, 0.5, 0.3]], [[0.1, 0.4, 0.5], [0.2, 0.5, 0.3]]])
    log_p_UQC = np.log(p_UQC)
    np.testing.assert_allclose(demonstration_sets.combine(log_p_UQC, "probability"), p_UQC.mean(0))
    product_QC = np.sqrt(p_UQC.prod(0))
    np.testing.assert_allclose(
        demonstration_sets.combine(log_p_UQC, "log_probability"), product_QC / product_QC.sum(-1, keepdims=True)
    )
    votes_QC = demonstration_sets.combine(log_p_UQC, "vote")
    np.testing.assert_allclose(votes_QC, [[0.5, 0, 0.5], [0, 1, 0]])
    assert votes_QC.argmax(-1).tolist() == [0, 1], "the lowest class wins a tie"
    certain_UQC = np.array([[[0.0, -800.0]], [[0.0, -900.0]]])
    for combination in demonstration_sets.COMBINATIONS:
        assert np.isfinite(demonstration_sets.combine(certain_UQC, combination)).all()


def test_each_set_read_alone(predict):
    """Whole prompts through the plain pass; they are longer than the context and keep their last tokens."""
    problem = make_problem(2, 5)
    result = predict("icl_ensemble", problem, whole_texts.model())
    sets = demonstration_sets.ensemble_sets(problem.split)
    p_UQC = [[whole_texts.icl(problem, rows, query) for query in problem.evaluation] for rows in sets]
    want_QC = np.mean(p_UQC, axis=0)
    np.testing.assert_allclose(result.probabilities_QC, want_QC, atol=3e-5)
    np.testing.assert_array_equal(result.classes_Q, want_QC.argmax(-1))
    assert result.note == "3 sets of 12 demonstrations" and (result.prompts, result.truncated) == (6, 6)


@pytest.mark.parametrize(
    ("shots", "message"),
    [
        ((2, 1), "shots=3: two sets of demo_shots=2 need 4 shots or more, or demo_shots of 1 or fewer"),
        ((0, 3), "demo_shots=0: an ensemble needs sets"),
        ((2, 2), "there are no anchors for a second set"),
    ],
)
def test_too_few_shots(shots, message):
    problem = make_problem(*shots)
    if "no anchors" in message:
        problem = dataclasses.replace(problem, split=dataclasses.replace(problem.split, anchors=()))
    with pytest.raises(errors.UserError, match=f"'icl_ensemble' does not apply: {message}") as error:
        registry.select(["icl_ensemble"], problem)
    assert "\n" not in str(error.value)


@pytest.fixture
def problem():
    return make_problem(1, 2)


@pytest.mark.parametrize(
    ("context", "most", "shown"),
    # 18 rows of 10 tokens and one for the blank line, after 1 special token and before a query of 10.
    [(11 + 4 * 11, 0, 4), (11 + 5 * 11 - 1, 0, 4), (1000, 0, 18), (1000, 7, 7), (12, 0, 0), (5, 0, 0)],
)
def test_as_many_as_leave_room(problem, monkeypatch, context, most, shown):
    monkeypatch.setattr(method.Problem, "num_special", 1)
    reader = method.Reader(lambda texts: np.full(len(texts), 10), context)
    rows = demonstration_sets.many_shot_rows(problem, reader, demonstration_sets.ManyShotSettings(most=most))
    # Where a query is too long even alone, the whole context is for demonstrations; here that holds none.
    assert len(rows) == shown
    every = demonstration_sets.many_shot_rows(
        problem, method.Reader(reader.lengths, 1000), demonstration_sets.ManyShotSettings()
    )
    assert rows == every[:shown] and sorted(row.row for row in every) == sorted(row.row for row in problem.train_rows)
    assert [row.row for row in every] != [row.row for row in problem.train_rows]


def test_predicts_as_whole_texts_do(problem, predict):
    model = whole_texts.model()
    result = predict("icl_many_shot", problem, model)
    shown = demonstration_sets.many_shot_rows(
        problem, method.Reader(problem.lengths, model.context), demonstration_sets.ManyShotSettings()
    )
    assert 0 < len(shown) < 18 and result.note == f"{len(shown)} demonstrations"
    one_more = [*shown, next(row for row in problem.train_rows if row not in shown)]
    texts = [layout.demonstration_text(TREC, rows) + TREC.render(problem.evaluation[2]) for rows in (shown, one_more)]
    fitting, longer = (len(whole_texts.tokens(text)) for text in texts)
    assert fitting <= model.context < longer + 20
    want_QC = [whole_texts.icl(problem, shown, query) for query in problem.evaluation]
    np.testing.assert_allclose(result.probabilities_QC, want_QC, atol=3e-5)
    assert (result.prompts, result.truncated) == (3, 0)
