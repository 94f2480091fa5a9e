"""The ensemble of in-context learners: disjoint sets, and what each of them says read alone and combined in NumPy."""

import collections
import dataclasses

import numpy as np
import pytest
from scipy import special

from knnprompt_jax import errors, lm
from knnprompt_jax.methods import icl_ensemble, registry
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
    made = icl_ensemble.demonstration_sets(split)
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
    made = icl_ensemble.demonstration_sets(dataclasses.replace(split, anchors=kept))
    assert [counts(own)["2"] for own in made] == [2, 2, 1, 0]
    assert [counts(own)["1"] for own in made] == [2, 2, 2, 2]
    only = dataclasses.replace(split, anchors=tuple(scarce[:3]))
    assert [len(own) for own in icl_ensemble.demonstration_sets(only)] == [12, 2, 1]


def test_combinations():
    p_UQC = np.array([[[0.6, 0.3, 0.1], [0.2, 0.5, 0.3]], [[0.1, 0.4, 0.5], [0.2, 0.5, 0.3]]])
    log_p_UQC = np.log(p_UQC)
    np.testing.assert_allclose(icl_ensemble.combine(log_p_UQC, "probability"), p_UQC.mean(0))
    product_QC = np.sqrt(p_UQC.prod(0))
    np.testing.assert_allclose(
        icl_ensemble.combine(log_p_UQC, "log_probability"), product_QC / product_QC.sum(-1, keepdims=True)
    )
    votes_QC = icl_ensemble.combine(log_p_UQC, "vote")
    np.testing.assert_allclose(votes_QC, [[0.5, 0, 0.5], [0, 1, 0]])
    assert votes_QC.argmax(-1).tolist() == [0, 1], "the lowest class wins a tie"
    certain_UQC = np.array([[[0.0, -800.0]], [[0.0, -900.0]]])
    for combination in icl_ensemble.COMBINATIONS:
        assert np.isfinite(icl_ensemble.combine(certain_UQC, combination)).all()


@pytest.mark.parametrize("combination", icl_ensemble.COMBINATIONS)
def test_each_set_read_alone(combination, predict, monkeypatch):
    """Whole prompts through the plain pass; some are longer than the context and keep their last tokens."""
    problem = make_problem(2, 5)
    passes, states = [], lm.LanguageModel.states
    monkeypatch.setattr(
        lm.LanguageModel, "states", lambda self, prompts, *args: passes.append(1) or states(self, prompts, *args)
    )
    result = predict("icl_ensemble", problem, whole_texts.model(), combination=combination)
    label_ids = layout.label_ids(TREC, problem.tokenize)
    p_UQC, lengths = [], []
    for rows in icl_ensemble.demonstration_sets(problem.split):
        head = "".join(TREC.render(row, row.label) + "\n" for row in rows)
        prompts = [whole_texts.tokens(head + TREC.render(query)) for query in problem.evaluation]
        lengths += map(len, prompts)
        scores = [
            [whole_texts.log_p(own[-whole_texts.CONTEXT :], [label])[0] for label in label_ids] for own in prompts
        ]
        p_UQC.append(special.softmax(scores, axis=-1))
    assert min(lengths) < whole_texts.CONTEXT < max(lengths) or min(lengths) > whole_texts.CONTEXT
    p_UQC = np.array(p_UQC)
    if combination == "probability":
        want_QC = p_UQC.mean(0)
    elif combination == "vote":
        want_QC = np.stack([np.bincount(p_UC.argmax(-1), minlength=6) / 3 for p_UC in p_UQC.swapaxes(0, 1)])
    else:
        want_QC = p_UQC.prod(0) ** (1 / 3) / (p_UQC.prod(0) ** (1 / 3)).sum(-1, keepdims=True)
    np.testing.assert_allclose(result.probabilities_QC, want_QC, atol=3e-5)
    np.testing.assert_array_equal(result.classes_Q, want_QC.argmax(-1))
    assert result.note == "3 sets of 12 demonstrations"
    assert len(passes) == 3, "the shared pass reads the first set's prompts"
    others = lengths[len(problem.evaluation) :]
    assert (result.prompts, result.truncated) == (len(others), sum(length > whole_texts.CONTEXT for length in others))


@pytest.mark.parametrize(
    ("shots", "message"),
    [
        (
            (2, 1),
            "shots=3 of which demo_shots=2 make a set: two sets need 4 shots or more, or demo_shots of 1 or fewer",
        ),
        ((0, 3), "demo_shots=0: there are no sets"),
        ((0, 0), "demo_shots=0: there are no sets"),
    ],
)
def test_too_few_shots(shots, message):
    problem = make_problem(*shots)
    with pytest.raises(errors.UserError, match=f"'icl_ensemble' does not apply: {message}") as error:
        registry.select(["icl_ensemble"], problem)
    assert "\n" not in str(error.value)


def test_no_anchors():
    problem = make_problem(2, 2)
    problem = dataclasses.replace(problem, split=dataclasses.replace(problem.split, anchors=()))
    with pytest.raises(errors.UserError, match="no anchors to make a second set of"):
        icl_ensemble.check(problem)
