"""Tasks and examples as values."""

import dataclasses

import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.tasks.task import Example, Task

MOOD = {"name": "mood", "fields": ("sentence",), "template": "Text: {sentence}\nMood:"}
MOOD |= {"labels": ("0", "1"), "label_words": ("bad", "good")}


def test_query_ends_at_the_colon_and_labelled_text_in_word_and_newline():
    task = Task(**MOOD)
    example = Example(fields={"sentence": "fine "}, label="1")
    assert task.render(example) == "Text: fine \nMood:"
    assert task.render(example, "1") == "Text: fine \nMood: good\n"
    assert task.retrieval_text(example) == "fine "
    assert (task.class_index("1"), task.num_classes) == (1, 2)


@pytest.mark.parametrize("text", ["{sentence}", "{}", "a { b", "} {0} {{x}}", "%s \\n {sentence.__class__}"])
def test_braces_in_texts_are_plain_characters(text):
    example = Example(fields={"sentence": text}, label="0")
    assert Task(**MOOD).render(example, "0") == f"Text: {text}\nMood: bad\n"


def test_templates_may_begin_with_any_field_and_double_braces():
    task = Task(**MOOD | {"fields": ("a", "b"), "template": "{{{b}}} after {a}, {b}:"})
    example = Example(fields={"a": "1", "b": "2"}, label="0")
    assert task.render(example) == "{2} after 1, 2:"
    assert task.retrieval_text(example) == "1 2"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"fields": ()}, "fields must be non-empty strings"),
        ({"labels": ("0", "0")}, "labels holds '0' more than once"),
        ({"label_words": ("bad",)}, "2 labels but 1 label words"),
        ({"label_words": (" bad", "good")}, "label_words has blanks at the ends of ' bad'; write 'bad'$"),
        ({"template": "Text: {text}\nMood:"}, "has text in braces; the fields are sentence"),
        ({"template": "Text: {sentence\nMood:"}, "is not a template: a brace is single"),
        ({"template": "Text: {sentence}\nMood: "}, "ends in white space"),
        ({"retrieval_template": "{premise}"}, "retrieval_template '{premise}' has premise"),
    ],
)
def test_contradictory_declarations_are_refused(change, message):
    with pytest.raises(errors.UserError, match=message):
        Task(**MOOD | change)


def test_labels_are_stripped_and_whole_numbers_are_texts():
    task = Task(**MOOD)
    assert {task.label_of("a:1", given) for given in ("1", " 1\n", 1, 1.0)} == {"1"}
    for given in ("1.0", 2):
        with pytest.raises(errors.UserError, match="a:1: unknown label '.*'; choose from 0, 1"):
            task.label_of("a:1", given)


def test_the_same_text_is_that_without_case_blanks_and_order_of_fields():
    first, second, other = (Example({"a": a, "b": b}, "0") for a, b in (("X y", "z"), ("Z", " x  Y\n"), ("xy", "z")))
    assert first.text_key == second.text_key != other.text_key


def test_examples_with_equal_columns_are_equal_wherever_they_come_from():
    example = Example(fields={"a": "x", "b": "y"}, label="0", row=3, place="train.jsonl:4", extra={"idx": 7})
    twin = Example(fields={"b": "y", "a": "x"}, label="0", row=5, place="train.jsonl:6", extra={"idx": 7})
    assert example == twin and hash(example) == hash(twin)
    for change in ({"label": "1"}, {"extra": {"idx": 8}}, {"fields": {"a": "x", "b": "z"}}):
        assert example != dataclasses.replace(example, **change)
