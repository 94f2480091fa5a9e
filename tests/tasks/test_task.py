"""Tasks and examples as values."""

import dataclasses

import pytest

from knnprompt_jax import errors
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
    with pytest.raises(errors.UserError, match="no label '2'; choose from 0, 1"):
        task.class_index("2")


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
        ({"fields": ()}, "fields is empty"),
        ({"label_words": ("bad", "")}, "non-empty strings"),
        ({"labels": ("0", "0")}, "labels holds '0' more than once"),
        ({"label_words": ("bad",)}, "2 labels but 1 label words"),
        ({"template": "Text: {text}\nMood:"}, r"\{text\}; choose from the fields sentence"),
        ({"template": "Text: {} {sentence}\nMood:"}, "name is required in braces; write {sentence}$"),
        ({"label_words": (" bad", "good")}, "label_words has blanks at the ends of ' bad'; write 'bad'$"),
        ({"template": "Text: {sentence\nMood:"}, "is not a template: '{' at character 6 is not closed; "),
        ({"template": "{sentence=}\nMood:"}, "only a field can be in braces, without '='; write {sentence}$"),
        ({"template": "{sentence!r}\nMood:"}, "only a field can be in braces, without '!r'; write {sentence}$"),
        ({"template": "{sentence:>9}\nMood:"}, "without ':>9'; write {sentence}$"),
        ({"template": "{sentence.text}\nMood:"}, "without '.text'; write {sentence}$"),
        ({"template": "{ sentence }\nMood:"}, "choose from the fields sentence; ' sentence ' and .* only in blanks$"),
        ({"template": "{sen\u00adtence}\nMood:"}, r"has {sen\\xadtence}; .* differ only in invisible characters$"),
        ({"template": "{sentence}}\nMood:"}, "is not a template: single '}' at character 10"),
        ({"fields": ("a{b",), "template": "{a{b}:"}, "cannot name the field 'a{b', which has a brace"),
        ({"template": "{{sentence}}\nMood:"}, "{{sentence}} is text in braces; write {sentence}$"),
        ({"template": "Mood:"}, "does not use the field 'sentence'"),
        ({"template": "Text: {sentence}\nMood: "}, "ends in white space"),
        ({"retrieval_template": "{premise}"}, "retrieval_template has {premise}"),
    ],
)
def test_contradictory_declarations_are_refused(change, message):
    with pytest.raises(errors.UserError, match=message):
        Task(**MOOD | change)


@pytest.mark.parametrize(
    ("labels", "given", "known", "merged"),
    [
        (("0", "1"), "1.0", "1", "1"),
        (("0.0", "1.0"), 1, "1.0", "1.0"),
        (("0", "1"), 1.0, "1", "1"),
        (("1", "1.0"), "1.00", None, None),
        (("1", "2"), "01", None, "1"),
        (("ham", "spam"), " HAM\u200b", None, "ham"),
        (("caf\u00e9", "th\u00e9"), "cafe\u0301", None, "caf\u00e9"),
        (("ham", "Ham"), "HAM", None, None),
    ],
)
def test_labels_by_other_names(labels, given, known, merged):
    task = Task(**MOOD | {"labels": labels})
    for merges, expected in ((False, known), (True, merged)):
        if expected:
            assert task.label_of("a:1", given, merges) == expected
        else:
            with pytest.raises(errors.UserError, match="a:1: unknown label .* differ only in"):
                task.label_of("a:1", given, merges)


def test_examples_with_equal_columns_are_equal_wherever_they_come_from():
    example = Example(fields={"a": "x", "b": "y"}, label="0", row=3, place="train.jsonl:4", extra={"idx": 7})
    twin = Example(fields={"b": "y", "a": "x"}, label="0", row=5, place="train.jsonl:6", extra={"idx": 7})
    assert example == twin and hash(example) == hash(twin)
    for change in ({"label": "1"}, {"extra": {"idx": 8}}, {"fields": {"a": "x", "b": "z"}}):
        assert example != dataclasses.replace(example, **change)
