"""Rows without labels, and their batches of few sizes, which give the predictions of one call for all rows."""

import numpy as np
import pytest

from knnprompt_jax.commands import unlabelled
from knnprompt_jax.common import errors
from knnprompt_jax.inference import states
from knnprompt_jax.tasks.table_file import Table
from knnprompt_jax.tasks.task import Example, Task

ONE = Task("mood", ("sentence",), "{sentence}\nMood:", ("bad", "good"), ("bad", "good"))
TWO = Task("pairs", ("first", "second"), "{first} {second}:", ("0", "1"), ("no", "yes"))


def test_a_pipe_has_no_count_and_no_digest_that_another_run_has(tmp_path):
    (tmp_path / "rows.txt").write_text("a\n\nb\n")
    path = str(tmp_path / "rows.txt")
    assert unlabelled.count_rows(Table(path), ONE) == 2 and unlabelled.count_rows(Table("-", kind="txt"), ONE) is None
    assert unlabelled.digest_input(path) == unlabelled.digest_input(path)
    assert unlabelled.digest_input("-") != unlabelled.digest_input("-")


def test_the_text_of_the_command_line_becomes_fields():
    assert unlabelled.parse_text(ONE, "a, b").fields == {"sentence": "a, b"}
    found = unlabelled.parse_text(TWO, '{"first": "a", "second": "b", "x": 1}')
    assert found.fields == {"first": "a", "second": "b"}
    with pytest.raises(errors.UserError, match="--text: give the fields as JSON"):
        unlabelled.parse_text(TWO, "a")


def as_rows(texts):
    return [Example({"sentence": text}, "", number) for number, text in enumerate(texts)]


@pytest.fixture
def hidden(demo_classifier, monkeypatch):
    def read(texts, characters):
        """The states of texts in batches of a size."""
        monkeypatch.setattr(unlabelled, "batch_characters", lambda model: characters)
        batches = unlabelled.read_batches(demo_classifier.fitted_, as_rows(texts), None)
        return [np.asarray(readings.states[1].hidden_NE) for _, readings in batches]

    return read


def test_batches_share_programs_and_give_the_states_of_one_call(demo_classifier, rows, hidden):
    model = demo_classifier.model
    texts = [row["sentence"] for row in rows]
    first = hidden(texts[:90], 1500)
    compilations = model.statistics.compilations
    prefix_tokens = model.statistics.prefix_tokens
    rest = hidden(texts[90:], 1500)
    assert len(rest) > 2 and model.statistics.compilations <= compilations + 1
    assert model.statistics.prefix_tokens == prefix_tokens, "the prefix stays in memory"
    wanted = states.read(model, demo_classifier.fitted_.build_prompts(as_rows(texts)).prompts[1]).hidden_NE
    np.testing.assert_allclose(np.concatenate(first + rest), np.asarray(wanted), rtol=1e-4, atol=1e-4)


def test_texts_of_all_lengths(demo_classifier, hidden, caplog):
    """One character, a text that joins the template's colon, more than a row, more than the context."""
    texts = ["a", ": b", "word " * 150, "many words " * 900, "c"]
    prompts = demo_classifier.fitted_.build_prompts(as_rows(texts)).prompts[1]
    wanted = states.read(demo_classifier.model, prompts).hidden_NE
    for characters in (10**6, 1):
        found = np.concatenate(hidden(texts, characters))
        np.testing.assert_allclose(found, np.asarray(wanted), rtol=2e-4, atol=2e-4)
    assert "1 of 5 prompts are longer than the context" in caplog.text


@pytest.mark.parametrize("lengths", [np.arange(1, 40), np.array([3, 7, 400])])
def test_batches_have_few_sizes_and_resume_from_any_of_them(demo_classifier, lengths, monkeypatch):
    """A row that fills a batch alone ends it in a resumed run too."""
    monkeypatch.setattr(unlabelled, "batch_characters", lambda model: 1500)
    rows = as_rows(["word " * count for count in np.random.default_rng(0).choice(lengths, 499)])
    found = unlabelled.split_into_batches(rows, demo_classifier.fitted_)
    batches = [[example.row for example in batch] for batch in found]
    assert len(batches) > 30 and len({len(batch) for batch in batches[:-1]}) <= 12
    assert [row for batch in batches for row in batch] == list(range(499))
    for number in (1, 6, 20):
        rest = unlabelled.split_into_batches(rows[batches[number][0] :], demo_classifier.fitted_)
        assert [[example.row for example in batch] for batch in rest] == batches[number:]
