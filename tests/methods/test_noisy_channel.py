"""Noisy channel against its definition, text by text and class by class."""

import dataclasses
import types

import numpy as np
import pytest
from scipy import special

from knnprompt_jax.common import errors
from knnprompt_jax.methods import method, noisy_channel
from knnprompt_jax.tasks import catalogue
from knnprompt_jax.tasks.task import Task
from tests.methods import whole_texts
from tests.methods.whole_texts import tokens

# Words that share their first token; two of them begin with another word.
ALIKE = Task("alike", ("text",), "Text: {text}\nKind:", ("x", "y", "z"), ("old town", "old", "old town hall"))


def mean_score(before, after, context):
    """Return the mean log p of the tokens after and of the end; tokens before are cut on the left so that all fits."""
    after = [*after, whole_texts.model().tokenizer.eos_token_id]
    return whole_texts.log_p(before[max(0, len(before) + len(after) - context) :], after).mean()


def channel(labels, demonstrations, text, label, limit, context):
    """Return the score of a text after a label, with "label text" of each demonstration before it."""
    before = [whole_texts.model().tokenizer.bos_token_id]
    for number, (other, own) in enumerate(demonstrations):
        before += tokens((" " if number else "") + labels[own]) + tokens(" " + other)[: limit + 16]
    before += tokens((" " if demonstrations else "") + labels[label])
    return mean_score(before, tokens(" " + text)[:limit], context)


def by_definition(problem, templates, limit, context):
    """Return scores [U, Q, C]."""
    task = problem.task
    demonstrations = [(task.retrieval_text(row), task.class_index(row.label)) for row in problem.split.demonstrations]
    texts = [task.retrieval_text(query) for query in problem.evaluation]
    scores_UQC = np.zeros((len(templates), len(texts), task.num_classes))
    for u, q, c in np.ndindex(scores_UQC.shape):
        labels = noisy_channel.verbalization_of(task).labels(templates[u])
        scores_UQC[u, q, c] = channel(labels, demonstrations, texts[q], c, limit, context)
    return scores_UQC


def make_problem(task, demo_shots=2, count=3):
    return whole_texts.make_problem(task, demo_shots, 1, whole_texts.queries(task, count))


def scores(problem, **options):
    context = method.Inputs(problem, whole_texts.model(), {})
    return noisy_channel.scores(context, noisy_channel.NoisyChannelOptions(**options))


@pytest.mark.parametrize("context", [67, 1024])
def test_scores_are_those_of_the_definition(context, monkeypatch):
    """One query is empty, one is longer than its limit, and 67 tokens cut some texts."""
    problem = make_problem(catalogue.get("mr"))
    verbalization = dataclasses.replace(noisy_channel.verbalization_of(problem.task), text_tokens=11)
    monkeypatch.setattr(noisy_channel, "verbalization_of", lambda task: verbalization)
    monkeypatch.setattr(noisy_channel, "CONTEXT", context)
    got_UQC, continuations = scores(problem)
    want_UQC = by_definition(problem, range(4), 11, min(context, whole_texts.CONTEXT))
    np.testing.assert_allclose(got_UQC, want_UQC, atol=3e-5)
    assert bool(continuations.num_truncated) == (context == 67)
    assert np.ptp(want_UQC, axis=-1).max() > 3e-3, "labels must matter for this to test anything"


def test_scores_of_labels_that_begin_alike():
    problem = make_problem(ALIKE, 1, count=2)
    got_UQC, _ = scores(problem, template=2)
    np.testing.assert_allclose(got_UQC, by_definition(problem, [1], 112, 1024), atol=3e-5)


def test_the_best_template_predicts_and_all_are_candidates(predict):
    task = catalogue.get("trec")
    problem = whole_texts.make_problem(task, 1, 0, whole_texts.queries(task, 7))
    prediction = predict("noisy_channel", problem, whole_texts.model())
    scores_UQC, _ = scores(problem)
    true_Q = [task.class_index(query.label) for query in problem.evaluation]
    accuracies = [np.mean(scores_QC.argmax(-1) == true_Q) for scores_QC in scores_UQC]
    assert len(set(accuracies)) > 1
    best_QC = scores_UQC[np.argmax(accuracies)]
    np.testing.assert_array_equal(prediction.classes_Q, best_QC.argmax(-1))
    np.testing.assert_allclose(prediction.probabilities_QC, special.softmax(best_QC, axis=-1), atol=3e-5)
    assert prediction.note == "best of 4 templates, CHOSEN ON THE EVALUATION ROWS for each seed"
    assert prediction.candidates == tuple(accuracies)
    assert (prediction.prompts, prediction.truncated) == (4 * 6 * 7, 0)


def test_published_limits():
    limits = {"mr": 112, "trec": 112, "cr": 240, "subj": 240, "dbpedia": 240}
    assert {name: noisy_channel.verbalization_of(catalogue.get(name)).text_tokens for name in limits} == limits


def test_a_missing_boundary_token_is_replaced_by_the_other():
    def boundaries(start, end):
        tokenizer = types.SimpleNamespace(bos_token_id=start, eos_token_id=end)
        return noisy_channel.boundary_tokens(types.SimpleNamespace(tokenizer=tokenizer, name="m"))

    assert (boundaries(None, 7), boundaries(5, None), boundaries(5, 7)) == ((7, 7), (5, 5), (5, 7))
    with pytest.raises(errors.UserError, match="m: the tokenizer has no token"):
        boundaries(None, None)
