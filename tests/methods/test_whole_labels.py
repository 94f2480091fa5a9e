"""In-context learning by whole label words against sums over their tokens, whole prompts read alone."""

import dataclasses

import numpy as np
import pytest
from scipy import special

from knnprompt_jax import errors
from knnprompt_jax.methods import in_context, registry
from knnprompt_jax.tasks.task import Task
from tests.methods import whole_texts

WORDS = ("old town", "river", "old town hall", "new ferry")
TASK = Task("places", ("text",), "Text: {text}\nKind:", ("0", "1", "2", "3"), WORDS)


def make_problem(task=TASK, demo_shots=1, count=3):
    return whole_texts.make_problem(task, demo_shots, 1, whole_texts.queries(task, count))


def by_definition(problem):
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
    problem = make_problem(demo_shots=demo_shots)
    lengths = [len(tokens) for tokens in in_context.label_tokens(problem)]
    assert min(lengths) >= 1 and max(lengths) > min(lengths)
    want_QC = by_definition(problem)
    result = predict("icl_multi_token", problem, whole_texts.model())
    np.testing.assert_allclose(result.probabilities_QC, special.softmax(want_QC, axis=-1), atol=3e-5)
    np.testing.assert_array_equal(result.classes_Q, want_QC.argmax(-1))
    assert result.prompts == sum(length > 1 for length in lengths) * 3 and (result.truncated > 0) == (demo_shots == 5)


def test_labels_of_one_token_cost_no_pass(predict):
    words = [word for word in ("one", "two", "old", "new", "house") if len(whole_texts.tokens(f" {word}")) == 1][:3]
    task = dataclasses.replace(TASK, labels=("0", "1", "2"), label_words=tuple(words))
    ours, published = (predict(name, make_problem(task), whole_texts.model()) for name in ("icl_multi_token", "icl"))
    np.testing.assert_allclose(ours.probabilities_QC, published.probabilities_QC, atol=1e-5)
    assert ours.prompts == 0


def test_label_words_of_the_same_tokens(problem):
    folded = dataclasses.replace(
        problem,
        task=dataclasses.replace(problem.task, label_words=("Yes", "no", "yes")),
        tokenize=lambda texts: [[ord(c) for c in text.lower()] for text in texts],
    )
    with pytest.raises(errors.UserError, match="does not apply: .* 'Yes' and 'yes' have the same tokens"):
        registry.select(["icl_multi_token"], folded)


def test_words_that_end_alike_are_told_apart(problem):
    """In-context learning reads the last token and refuses them."""
    alike = dataclasses.replace(problem, task=dataclasses.replace(problem.task, label_words=("ax", "bx", "cx")))
    assert [one.name for one in registry.select(["icl_multi_token"], alike)[0]] == ["icl_multi_token"]
