"""Repeated and conflicting texts."""

import re

import pytest

from knnprompt_jax.tasks import catalogue, defects, sources
from knnprompt_jax.tasks.task import Example

PAIRS = (("a", "0"), ("b", "1"), ("a", "0"), ("c", "0"), ("c", "1"), ("d", "0"), ("c", "0"))
TRAIN = [Example({"sentence": text}, label, row) for row, (text, label) in enumerate(PAIRS)]
EVALUATION = [Example({"sentence": text}, "0") for text in "deD"]


def test_defects_are_counted_over_exact_texts_and_removed():
    assert defects.describe(TRAIN, EVALUATION) == (
        "1 of 3 evaluation texts also occur in train; 3 train rows repeat a text; 1 text has conflicting labels"
    )
    assert defects.describe(TRAIN[:3], EVALUATION) == "1 train row repeats a text", "zero counts are left out"
    left = defects.drop(TRAIN, EVALUATION)
    assert [example.row for example in left] == [0, 1] and not defects.describe(left, EVALUATION)


def test_defects_in_several_files_are_named_with_their_file():
    pairs = (("a", "x", "one.csv:2"), ("b", "x", "one.csv:3"), ("a", "x", "two.csv:2"), ("b", "y", "two.csv:3"))
    rows = [Example({"text": text}, label, place=place) for text, label, place in pairs]
    assert defects.places(rows) == "two.csv:3 ('y') contradicts one.csv:3 ('x'); two.csv:2 repeats one.csv:2"
    again = Example({"text": "a"}, "x", place="one.csv:7")
    assert defects.places([rows[0], again]) == "line 7 repeats line 2"


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["x", "x"], ["all train rows have the label 'x', so every prediction will be 'x'"]),
        (["a", "b", "b", "c"], ["labels with a single train row: 'a', 'c'"]),
        (["a", "b", "c"], ["each of 3 train rows has a label of its own, such as 'a': is it the right label column"]),
        (["Wet", " wet", "Wet", " wet", "dry", "dry"], ["differ only in .*: 'Wet' .2., ' wet' .2.; write them alike"]),
        (["1", "01", "1.0", "1", "01", "1.0", "2", "2"], ["differ only in .*: '1' .*, '01' .*, '1.0' .2."]),
        (["caf\u00e9", "cafe\u0301"] * 2, ["differ only in "]),
        ([" a", " b"] * 2, ["^labels keep the blanks at their ends: ' a', ' b'; remove them in the file$"]),
        (
            ["card_arrival"] * 8 + ["card_arival", "card_linking", "arrival", "seven"] * 2 + ["five"] * 8,
            ["^labels of few rows that may be misspelt .rows.: 'card_arival' .2. like 'card_arrival' .8.; correct"],
        ),
        (["team 1"] * 8 + ["team 2", "team 12", "teams 1"] * 2, ["misspelt .rows.: 'teams 1' .2. like 'team 1' .8.; "]),
        (["Team"] * 8 + ["team"] * 2, ["differ only in"]),
        (["b", "B", " a"] * 2, ["differ only in .*: 'b' .*, 'B' .2.", "^labels keep the blanks at their ends: ' a'; "]),
    ],
)
def test_labels_that_are_probably_mistakes(kinds, expected):
    found = list(defects.label_warnings([Example({"text": "a"}, kind) for kind in kinds]))
    assert len(found) == len(expected) and all(map(re.search, expected, found)), found


@pytest.mark.parametrize(
    ("labels", "merged", "message"),
    [
        (["Ma\u00dfe", "Masse", "m\u00b2", "m2", "\uff11", "2"], None, ""),
        (["ham", "Ham ", "ham", "egg", "egg"], ["ham"] * 3 + ["egg"] * 2, "'ham' (2), 'Ham ' (1) -> 'ham'"),
        (
            ["cafe\u0301", "caf\u00e9", "CAF\u00c9"],
            ["caf\u00e9"] * 3,
            "'cafe\\u0301' (1), 'caf\\xe9' (1), 'CAF\\xc9' (1) -> 'caf\\xe9'",
        ),
        (["1", "1.0", "01"], ["1"] * 3, "'1' (1), '1.0' (1), '01' (1) -> '1'"),
    ],
)
def test_only_labels_of_one_identity_are_merged(labels, merged, message):
    rows = [Example({"text": "a"}, label) for label in labels]
    found, counts = defects.merge_labels(rows)
    assert [row.label for row in found] == (merged or labels)
    assert defects.renamed_labels(counts) == f"merged labels (rows): {message}" and bool(counts) == bool(message)


def test_a_label_and_its_other_unicode_form_are_shown_differently():
    message = defects.renamed_labels({("cafe\u0301", "caf\u00e9"): 1, ("Th\u00e9", "th\u00e9"): 2})
    assert message == "merged labels (rows): 'cafe\\u0301' (1) -> 'caf\\xe9'; 'Th\u00e9' (2) -> 'th\u00e9'"


def test_labels_that_cannot_be_merged_have_other_advice():
    (warning,) = defects.alike(["Masse", "Ma\u00dfe"], "add --merge_labels")
    assert warning.endswith(defects.WRITE_ALIKE)


@pytest.mark.parametrize(
    ("header", "count"), [("message,label", 1), ("message,label\nx,y\nbody,label", 2), ("a,Label", 0)]
)
def test_a_second_header_with_another_name(tmp_path, header, count, caplog):
    path = tmp_path / "rows.csv"
    path.write_text(f"text,label\none,x\ntwo,y\n{header}\nthree,x\n")
    sources.load_table(str(path))
    more = " (2 such rows)" if count > 1 else ""
    message = f"{path}: line 4 looks like a header, because its label is 'label'{more}: delete it if it is one"
    assert (message in caplog.text) == bool(count)


def test_many_doubtful_columns_are_one_warning():
    fields = [{"a": "low", "text": str(number), "b": f"{number % 3}", "c": ""} for number in range(9)]
    (warning,) = defects.doubtful_fields([Example(row, "x") for row in fields])
    assert warning == (
        "columns a, b, c are in the prompt, but each have only 1 to 3 distinct texts in 9 rows: to leave them out, add "
        "--text_columns=text"
    )
    assert not list(defects.doubtful_fields([Example({"a": "x"}, "x")]))


def test_rows_with_the_text_of_a_known_row():
    assert [row.fields["sentence"] for row in defects.matches(EVALUATION, TRAIN)] == ["d"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mpqa", "56 of 256 .*; 1871 train .*; 73 texts"),
        ("trec", "7 of 256 evaluation .*; 71 train rows repeat a text$"),
    ],
)
def test_the_published_files_have_the_known_defects(shared, name, expected):
    task, data_dir = catalogue.get(name), str(shared / "data")
    train = sources.load_rows(task, "train", data_dir=data_dir, restore_dropped=True)
    evaluation = sources.load_rows(task, "dev_subsample", data_dir=data_dir)
    assert re.match(expected, defects.describe(train, evaluation))
