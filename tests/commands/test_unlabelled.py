"""Rows without labels, and their batches of few sizes, which give the predictions of one call for all rows."""

import io
import sys

import numpy as np
import pytest

from knnprompt_jax import errors, states
from knnprompt_jax.commands import unlabelled
from knnprompt_jax.models import registry
from knnprompt_jax.tasks.table_file import Table
from knnprompt_jax.tasks.task import Example, Task

ONE = Task("mood", ("sentence",), "{sentence}\nMood:", ("bad", "good"), ("bad", "good"))
TWO = Task("pairs", ("first", "second"), "{first} {second}:", ("0", "1"), ("no", "yes"))


@pytest.mark.parametrize(
    ("kind", "content"),
    [("csv", '\ufeffid,sentence\r\n1,"a, b"\r\n\r\n2,"two\nlines"\n'), ("txt", "a, b\r\n\n \ntwo\nlines\n")],
)
def test_files_and_standard_input_have_the_same_rows(tmp_path, monkeypatch, kind, content):
    path = tmp_path / f"rows.{kind}"
    path.write_bytes(content.encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(path.read_bytes()))))
    tables = (Table(str(path)), Table("-", kind=kind))
    expected = ["a, b", "two", "lines"] if kind == "txt" else ["a, b", "two\nlines"]
    for table in tables:
        assert [row.fields["sentence"] for row in table.unlabelled(ONE)] == expected
    assert unlabelled.count(tables[0], ONE) == len(expected) and unlabelled.count(tables[1], ONE) is None
    assert unlabelled.digest(str(path)) == unlabelled.digest(str(path)) and unlabelled.digest("-") != unlabelled.digest(
        "-"
    )


@pytest.mark.parametrize(
    ("task", "text", "expected"),
    [
        (ONE, "a, b", {"sentence": "a, b"}),
        (ONE, " ", "--text: no text in sentence"),
        (TWO, '{"first": "a", "second": "b", "x": 1}', {"first": "a", "second": "b"}),
        (TWO, '{"First": "a", "second": "b"}', "--text: .*'first'"),
        (TWO, '["a"]', "--text: give the fields as JSON"),
        (TWO, "a", '--text: give the fields as JSON: --text=\'{"first": '),
    ],
)
def test_the_text_of_the_command_line_becomes_fields(task, text, expected):
    if isinstance(expected, dict):
        assert unlabelled.parse_text(task, text).fields == expected
    else:
        with pytest.raises(errors.UserError, match=expected):
            unlabelled.parse_text(task, text)


def as_rows(texts):
    return [Example({"sentence": text}, "", number) for number, text in enumerate(texts)]


@pytest.fixture
def hidden(classifier, monkeypatch):
    def read(texts, characters):
        """The states of texts in batches of a size."""
        monkeypatch.setattr(unlabelled, "batch_characters", lambda model: characters)
        batches = unlabelled.read_batches(classifier.fitted_, as_rows(texts), None)
        return [np.asarray(readings.states[1].hidden_NE) for _, readings in batches]

    return read


def test_batches_share_programs_and_give_the_states_of_one_call(classifier, rows, hidden):
    model = classifier.model
    texts = [row["sentence"] for row in rows]
    first = hidden(texts[:90], 1500)
    compilations = model.statistics.compilations
    prefix_tokens = model.statistics.prefix_tokens
    rest = hidden(texts[90:], 1500)
    assert len(rest) > 2 and model.statistics.compilations <= compilations + 1
    assert model.statistics.prefix_tokens == prefix_tokens, "the prefix stays in memory"
    wanted = states.read(model, classifier.fitted_.build_prompts(as_rows(texts)).prompts[1]).hidden_NE
    np.testing.assert_allclose(np.concatenate(first + rest), np.asarray(wanted), rtol=1e-4, atol=1e-4)


def test_texts_of_all_lengths(classifier, hidden, caplog):
    """One character, a text that joins the template's colon, more than a row, more than the context."""
    texts = ["a", ": b", "word " * 150, "many words " * 900, "c"]
    wanted = states.read(classifier.model, classifier.fitted_.build_prompts(as_rows(texts)).prompts[1]).hidden_NE
    for characters in (10**6, 1):
        found = np.concatenate(hidden(texts, characters))
        np.testing.assert_allclose(found, np.asarray(wanted), rtol=2e-4, atol=2e-4)
    assert "1 of 5 prompts are longer than the context" in caplog.text


@pytest.mark.parametrize("lengths", [np.arange(1, 40), np.array([3, 7, 400])])
def test_batches_have_few_sizes_and_resume_from_any_of_them(classifier, lengths, monkeypatch):
    """A row that fills a batch alone ends it in a resumed run too."""
    monkeypatch.setattr(unlabelled, "batch_characters", lambda model: 1500)
    rows = as_rows(["word " * count for count in np.random.default_rng(0).choice(lengths, 499)])
    batches = [[example.row for example in batch] for batch in unlabelled.cut(rows, classifier.fitted_)]
    assert len(batches) > 30 and len({len(batch) for batch in batches[:-1]}) <= 12
    assert [row for batch in batches for row in batch] == list(range(499))
    for number in (1, 6, 20):
        rest = unlabelled.cut(rows[batches[number][0] :], classifier.fitted_)
        assert [[example.row for example in batch] for batch in rest] == batches[number:]


@pytest.mark.parametrize(("parameters", "steps"), [(10**6, 16), (134_000_000, 5), (10**10, 0)])
def test_a_batch_costs_a_bounded_number_of_operations_on_a_cpu(classifier, monkeypatch, parameters, steps):
    monkeypatch.setattr(registry, "num_parameters", lambda config: parameters)
    characters = unlabelled.batch_characters(classifier.model)
    assert characters // (4 * classifier.model.step_tokens) == steps and characters >= 4
