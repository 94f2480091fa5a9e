"""Noisy channel against its definition, text by text and class by class."""

import dataclasses
import types

import numpy as np
import pytest
from scipy import special

from knnprompt_jax import errors
from knnprompt_jax.methods import method, noisy_channel
from knnprompt_jax.models import tokenizers
from knnprompt_jax.prompts import layout
from knnprompt_jax.settings import methods
from knnprompt_jax.tasks import catalogue
from knnprompt_jax.tasks.task import Task
from tests.methods import whole_texts
from tests.methods.whole_texts import tokens
from tests.models import gguf_tokenizers

# Words that begin with the same token, one of them the beginning of another.
ALIKE = Task("alike", ("text",), "Text: {text}\nKind:", ("x", "y", "z"), ("old town", "old", "old town hall"))


def mean_score(before, after, context):
    """Mean log p of the tokens after, and of the end; those before are cut on the left so that all fits."""
    after = [*after, whole_texts.model().tokenizer.eos_token_id]
    return whole_texts.log_p(before[max(0, len(before) + len(after) - context) :], after).mean()


def channel(labels, shown, text, label, limit, context):
    before = [whole_texts.model().tokenizer.bos_token_id]
    for number, (other, own) in enumerate(shown):
        before += tokens((" " if number else "") + labels[own]) + tokens(" " + other)[: limit + 16]
    before += tokens((" " if shown else "") + labels[label])
    return mean_score(before, tokens(" " + text)[:limit], context)


def by_definition(problem, templates, rows, limit, context):
    """Scores [U, Q, C]."""
    task, labels = problem.task, noisy_channel.verbalization_of(problem.task).labels
    texts, classes = [task.retrieval_text(query) for query in problem.evaluation], range(task.num_classes)

    def score(template, text, label):
        return channel(labels(template), rows, text, label, limit, context)

    return np.array([[[score(template, text, label) for label in classes] for text in texts] for template in templates])


def shown_rows(problem, rows):
    return [(problem.task.retrieval_text(row), problem.task.class_index(row.label)) for row in rows]


def make_problem(task, demo_shots=2, count=3):
    return whole_texts.make_problem(task, demo_shots, 1, whole_texts.queries(task, count))


def scores(problem, **options):
    context = method.Context(problem, whole_texts.model(), {})
    return noisy_channel.scores(context, methods.NoisyChannelOptions(**options))


@pytest.mark.parametrize("context", [67, 0])
def test_scores(context):
    """By all four templates; a query is empty, one is longer than its limit, and some texts are cut with 67 tokens."""
    problem = make_problem(catalogue.get("mr"))
    got_UQC, continuations = scores(problem, text_tokens=11, context_tokens=context)
    rows = shown_rows(problem, problem.split.demonstrations)
    want_UQC = by_definition(problem, range(4), rows, 11, context or whole_texts.CONTEXT)
    np.testing.assert_allclose(got_UQC, want_UQC, atol=3e-5)
    assert bool(continuations.num_truncated) == bool(context)
    assert np.median(np.ptp(want_UQC, axis=-1)) > 3e-3, "labels must matter for this to test anything"


@pytest.mark.parametrize(("labels", "demo_shots"), [(3, 1), (1, 0)])
def test_labels_that_begin_alike(demo_shots, labels):
    """Three classes with one demonstration each, and one alone without demonstrations."""
    task = dataclasses.replace(ALIKE, labels=ALIKE.labels[:labels], label_words=ALIKE.label_words[:labels])
    problem = make_problem(task, demo_shots, count=2)
    got_UQC, _ = scores(problem, template=2)
    rows = shown_rows(problem, problem.split.demonstrations)
    np.testing.assert_allclose(got_UQC, by_definition(problem, [1], rows, 112, 1024), atol=3e-5)


def test_all_rows_are_shown():
    problem = make_problem(catalogue.get("mr"), demo_shots=1)
    got_UQC, _ = scores(problem, shown="all", template=4)
    rows = shown_rows(problem, [*problem.split.demonstrations, *problem.split.anchors])
    assert len(rows) == 4
    np.testing.assert_allclose(got_UQC, by_definition(problem, [3], rows, 112, 1024), atol=3e-5)


def test_the_best_template_is_kept_and_the_others_told(predict):
    task = catalogue.get("trec")
    problem = whole_texts.make_problem(task, 1, 0, whole_texts.queries(task, 7))
    result = predict("noisy_channel", problem, whole_texts.model())
    scores_UQC, _ = scores(problem)
    true_Q = [task.class_index(query.label) for query in problem.evaluation]
    accuracies = [np.mean(scores_QC.argmax(-1) == true_Q) for scores_QC in scores_UQC]
    best = int(np.argmax(accuracies))
    assert len(set(accuracies)) > 1
    np.testing.assert_array_equal(result.classes_Q, scores_UQC[best].argmax(-1))
    np.testing.assert_allclose(result.probabilities_QC, special.softmax(scores_UQC[best], axis=-1), atol=3e-5)
    assert result.note == "best of 4 templates, CHOSEN ON THE EVALUATION ROWS for each seed"
    assert result.candidates == tuple(accuracies)
    assert (result.prompts, result.truncated) == (4 * 6 * 7, 0)
    one = predict("noisy_channel", make_problem(ALIKE), whole_texts.model(), template=3)
    assert one.note == "templates are ours: Min et al. have none for this task" and not one.candidates


@pytest.mark.parametrize(("task", "text"), [("mr", 112), ("trec", 112), ("cr", 240), ("subj", 240), ("dbpedia", 240)])
def test_published_limits(task, text):
    words = noisy_channel.verbalization_of(catalogue.get(task))
    assert noisy_channel.limits(methods.NoisyChannelOptions(), words, 2048) == (text, 1024)


def test_special_tokens_are_added_once():
    """A tokenizer of single characters that begins every text with a token of its own, as OPT's does."""
    writer = noisy_channel.Writer(lambda texts: [[2, *map(ord, text)] for text in texts], 2, 3, text_tokens=4)
    shown = [("one", 1), ("a text of more than twenty tokens", 0)]
    family = writer.channel(["A", "B"], shown, ["", "query"])
    assert [chr(token) for token in family.prefix_P] == list("\2B one A a text of more than")
    written = [["".join(map(chr, piece)) for piece in pieces] for pieces in (family.contexts, family.targets)]
    assert written == [[" A", " B"] * 2, [" \3", " \3", " que\3", " que\3"]]


@pytest.mark.parametrize("prefix", [True, False])
def test_pieces_have_the_tokens_of_the_whole_text(tmp_path, prefix):
    """Llama 2's tokenizer (`prefix`) puts a blank before the first word of a text."""
    path = gguf_tokenizers.sentencepiece(prefix).write(tmp_path / "t.gguf", "llama" if prefix else "gemma3")
    tokenize = layout.tokenize_with(tokenizers.load(path))
    writer, special = noisy_channel.Writer(tokenize, 1, 2, text_tokens=99), len(tokenize([""])[0])
    family = writer.channel(["the film", "terrible"], [("they said", 1), ("it was", 0)], ["great"])
    whole = tokenize(["terrible they said the film it was"])[0][special:]
    assert family.prefix_P.tolist() == [1, *whole]
    first, *both = tokenize(["a", "a the film", "a terrible"])
    assert [piece.tolist() for piece in family.contexts] == [text[len(first) :] for text in both]


def test_a_text_that_fills_the_context():
    with pytest.raises(errors.UserError, match="tokens to score do not fit in 5 tokens"):
        scores(make_problem(catalogue.get("mr")), text_tokens=31, context_tokens=5)


@pytest.mark.parametrize(("start", "end", "ends"), [(None, 7, (7, 7)), (5, None, (5, 5)), (5, 7, (5, 7))])
def test_tokens_that_begin_and_end_texts(start, end, ends):
    tokenizer = types.SimpleNamespace(bos_token_id=start, eos_token_id=end)
    model = types.SimpleNamespace(tokenizer=tokenizer, name="m")
    assert noisy_channel.boundary_tokens(model) == ends
    tokenizer.bos_token_id = tokenizer.eos_token_id = None
    with pytest.raises(errors.UserError, match="m: the tokenizer has no token that begins or ends a text"):
        noisy_channel.boundary_tokens(model)
