"""Rows in batches of few sizes, which give the predictions of one call for all rows."""

import numpy as np
import pytest

from knnprompt_jax import errors, states
from knnprompt_jax.commands import unlabelled
from knnprompt_jax.models import registry
from knnprompt_jax.tasks.task import Example
from tests.commands.conftest import failure


def as_rows(texts):
    return [Example({"sentence": text}, "", number) for number, text in enumerate(texts)]


def hidden(found, classifier):
    parts = [classifier.fitted_.read_prompts(batch.queries).states[1] for batch in found]
    return np.concatenate([np.asarray(part.hidden_NE) for part in parts])


def test_batches_share_programs_and_the_prefix(classifier, rows):
    model, texts = classifier.model, [row["sentence"] for row in rows]
    found = list(unlabelled.prefetch(unlabelled.batches(as_rows(texts), classifier.fitted_, 1500)))
    first = hidden(found[:3], classifier)
    compilations, prefix_tokens = model.statistics.compilations, model.statistics.prefix_tokens
    rest = hidden(found[3:-1], classifier)
    assert len(found) > 5 and model.statistics.compilations <= compilations + 1
    assert model.statistics.prefix_tokens == prefix_tokens, "the prefix stays in memory"
    (whole,) = unlabelled.batches(as_rows(texts), classifier.fitted_, 10**6)
    wanted = np.asarray(states.read(model, whole.queries.prompts[1]).hidden_NE)
    np.testing.assert_allclose(np.concatenate([first, rest]), wanted[: len(first) + len(rest)], rtol=1e-4, atol=1e-4)


def test_texts_of_all_lengths(classifier):
    """One character, a text that joins the template's colon, more than a row, more than the context."""
    texts = ["a", ": b", "word " * 150, "many words " * 900, "c"]
    (whole,) = unlabelled.batches(as_rows(texts), classifier.fitted_, 10**6)
    assert whole.queries.num_truncated == 1
    wanted = np.asarray(states.read(classifier.model, whole.queries.prompts[1]).hidden_NE)
    for found in ([whole], unlabelled.batches(as_rows(texts), classifier.fitted_, 1)):
        np.testing.assert_allclose(hidden(found, classifier), wanted, rtol=2e-4, atol=2e-4)


def test_batches_have_few_sizes_and_resume_from_any_of_them(classifier):
    some = as_rows(["word " * count for count in np.random.default_rng(0).integers(1, 40, 997)])
    found = list(unlabelled.batches(some, classifier.fitted_, 3000))
    sizes = [len(batch.examples) for batch in found]
    assert len(sizes) > 30 and len(set(sizes[:-1])) <= 3
    assert [example.row for batch in found for example in batch.examples] == list(range(997))
    rest = unlabelled.batches(some[found[6].examples[-1].row + 1 :], classifier.fitted_, 3000)
    assert [len(batch.examples) for batch in rest] == sizes[7:]


def test_a_row_that_fills_a_batch_alone_ends_it_in_a_resumed_run_too(classifier):
    some = as_rows(["word " * count for count in np.random.default_rng(0).choice([3, 7, 400], 37)])

    def batches(first):
        found = unlabelled.batches(some[first:], classifier.fitted_, 1000)
        return [[example.row for example in batch.examples] for batch in found]

    whole = batches(0)
    assert {len(batch) for batch in whole} >= {1, 2}
    for number, batch in enumerate(whole, 1):
        assert batches(batch[-1] + 1) == whole[number:]


def test_errors_end_the_batches_after_the_good_rows(classifier):
    def rows_that_end():
        yield from as_rows(["a", "b"])
        yield errors.UserError("rows.csv:3: bad")

    found = unlabelled.prefetch(unlabelled.batches(rows_that_end(), classifier.fitted_))
    assert [example.row for example in next(found).examples] == [0, 1]
    assert failure(next, found) == "rows.csv:3: bad"


@pytest.mark.parametrize(("parameters", "steps"), [(10**6, 16), (134_000_000, 5), (10**10, 0)])
def test_a_batch_costs_a_bounded_number_of_operations_on_a_cpu(classifier, monkeypatch, parameters, steps):
    """Whole steps of the batch, which depend on the size of the model alone."""
    monkeypatch.setattr(registry, "num_parameters", lambda config: parameters)
    characters = unlabelled.batch_characters(classifier.model)
    assert characters // (4 * classifier.model.step_tokens) == steps and characters >= 4
