"""Batches of any size say what one call for all rows says, in one packing, after a prefix that is read once."""

import numpy as np
import pytest

from knnprompt_jax import lm
from knnprompt_jax.prediction import batches, rows
from knnprompt_jax.prompts import packing
from knnprompt_jax.tasks.task import Example
from tests.prediction.conftest import failure


def as_rows(texts):
    return [
        rows.MarkedRow(Example({"sentence": text}, "", number), rows.Mark(number + 1))
        for number, text in enumerate(texts)
    ]


def hidden(found, laid):
    return np.concatenate([np.asarray(batches.states(batch, laid).hidden_NE) for batch in found])


def test_short_texts_share_one_packing_and_one_prefix(classifier, rows):
    texts = [row["sentence"] for row in rows]
    laid, model = batches.BatchLayout(classifier), classifier.lm
    model.execution.statistics = lm.PassStatistics()
    first, *others = batches.ahead(batches.read(as_rows(texts), laid, 1500))
    got = [hidden([first], laid)]
    compilations = model.statistics.compilations
    got.append(hidden(others, laid))
    assert len(others) > 4 and model.statistics.compilations == compilations
    assert {laid.shape(group) for batch in [first, *others] for group in batch.prompts.groups} == {
        packing.PackShape(packing.round_up(len(laid.prefix_P), 64), 128, model.step_tokens // 128, laid.reads[1])
    }
    assert model.statistics.prefix_tokens == len(laid.prefix_P) > 50
    (whole,) = batches.read(as_rows(texts), laid, 10**6)
    wanted = np.asarray(model.states(whole.prompts).hidden_NE)
    np.testing.assert_allclose(np.concatenate(got), wanted, rtol=1e-4, atol=1e-4)


def test_texts_of_all_lengths(classifier):
    """One character, what joins the template's colon, more than a row, more than the context."""
    texts = ["a", ": b", "word " * 150, "many words " * 900, "c", *["word " * 150] * 5]
    laid = batches.BatchLayout(classifier)
    (whole,) = batches.read(as_rows(texts), laid, 10**6)
    assert whole.prompts.num_truncated == 1
    assert sorted(np.concatenate([group.index for group in whole.prompts.groups])) == list(range(len(texts)))
    wanted = np.asarray(classifier.read([row.example for row in as_rows(texts)]).hidden_NE)
    for found in ([whole], batches.read(as_rows(texts), laid, 1)):
        np.testing.assert_allclose(hidden(found, laid), wanted, rtol=2e-4, atol=2e-4)


def test_room_grows_for_shorter_texts_and_is_remembered(classifier):
    laid = batches.BatchLayout(classifier)
    long, short = batches.read(as_rows(["word " * 60] * 20 + ["a"] * 300), laid, 6000)
    assert long.reads[1] < short.reads[1] and batches.BatchLayout(classifier, short.reads).reads == list(short.reads)
    assert hidden([short], laid).shape[0] == 300


def test_batches_have_few_sizes_and_go_on_from_any_of_them(classifier):
    """Programs are compiled for every size of a batch, so that memory would grow with the number of sizes."""
    rng, laid = np.random.default_rng(0), batches.BatchLayout(classifier)
    some = as_rows(["word " * count for count in rng.integers(1, 40, 997)])
    found = list(batches.read(some, laid, 3000))
    sizes = [len(batch.examples) for batch in found]
    assert len(sizes) > 30 and len(set(sizes[:-1])) <= 3 and len(set(sizes)) <= 4
    assert [example.row for batch in found for example in batch.examples] == list(range(997))
    for done in (1, 7):
        rest = batches.read(some[found[done - 1].mark.rows :], laid, 3000)
        assert [len(batch.examples) for batch in rest] == sizes[done:]


def test_a_bad_row_ends_the_batches_after_the_good_ones(classifier):
    laid, some = batches.BatchLayout(classifier), as_rows(["a", "b", "c", "d"])
    bad = batches.errors.UserError("rows.csv:3: bad")
    some[2] = rows.MarkedRow(bad, some[2].mark)
    found = batches.read(some, laid)
    batch = next(found)
    assert [example.row for example in batch.examples] == [0, 1] and batch.mark == some[1].mark
    assert failure(next, found) == "rows.csv:3: bad"
    (batch,) = batches.read(some, laid, skip_bad=True)
    assert [example.row for example in batch.examples] == [0, 1, 3] and batch.mark == some[3].mark


def test_errors_of_the_thread_arrive(classifier):
    def rows_that_end():
        yield as_rows(["a"])[0]
        raise batches.errors.UserError("the disk is gone")

    with pytest.raises(batches.errors.UserError, match="the disk is gone"):
        list(batches.ahead(batches.read(rows_that_end(), batches.BatchLayout(classifier))))
