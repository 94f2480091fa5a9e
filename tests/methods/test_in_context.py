"""In-context learning by one token per label, and by whole labels, against plain computations."""

import dataclasses

import numpy as np
import pytest
from scipy import special

from knnprompt_jax.tasks.task import Task
from tests.methods import whole_texts

WORDS = ("old town", "river", "old town hall", "new ferry")
TASK = Task("places", ("text",), "Text: {text}\nKind:", ("0", "1", "2", "3"), WORDS)


def make_problem(demo_shots=1, task=TASK):
    return whole_texts.make_problem(task, demo_shots, 1, whole_texts.queries(task, 3))


def whole_label_scores(problem):
    """Return log p [Q, C].

    The first token of a label follows the prompt's last tokens. Its other tokens follow as many tokens as then fit.
    """
    task = problem.task
    context = whole_texts.CONTEXT
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
def test_whole_labels_sum_over_their_tokens(demo_shots, predict):
    """Labels share first tokens, and one begins with another; with 5 demonstrations, prompts exceed the context."""
    problem = make_problem(demo_shots)
    lengths = [len(tokens) for tokens in problem.word_tokens]
    assert max(lengths) > min(lengths)
    want_QC = whole_label_scores(problem)
    prediction = predict("icl_multi_token", problem, whole_texts.model())
    np.testing.assert_allclose(prediction.probabilities_QC, special.softmax(want_QC, axis=-1), atol=3e-5)
    np.testing.assert_array_equal(prediction.classes_Q, want_QC.argmax(-1))
    assert prediction.prompts == 3 * sum(length > 1 for length in lengths)
    assert (prediction.truncated > 0) == (demo_shots == 5)


def test_labels_of_one_token_need_no_pass(predict):
    candidates = ("one", "two", "old", "new", "house")
    words = [word for word in candidates if len(whole_texts.tokens(f" {word}")) == 1][:3]
    task = dataclasses.replace(TASK, labels=("0", "1", "2"), label_words=tuple(words))
    prediction = predict("icl_multi_token", make_problem(task=task), whole_texts.model())
    one_token = predict("icl", make_problem(task=task), whole_texts.model())
    np.testing.assert_allclose(prediction.probabilities_QC, one_token.probabilities_QC, atol=1e-5)
    assert prediction.prompts == 0
