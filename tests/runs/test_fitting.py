"""A classifier from a table of one's own."""

import csv

import pytest

import knnprompt_jax as kp
from knnprompt_jax import errors, lm
from knnprompt_jax.classifier import demonstrations, evidence
from knnprompt_jax.classifier import options as options_lib
from knnprompt_jax.runs import fitting

BILLING = ("I was charged twice", "refund me", "the invoice is wrong", "money back", "a fee")
OUTAGE = ("the site is down", "nothing loads", "server error")


@pytest.fixture
def table(tmp_path):
    """Eight tickets of two classes, with their numbers and days."""
    rows = [(text, "billing team") for text in BILLING] + [(text, "outage") for text in OUTAGE]
    with (tmp_path / "train.csv").open("w", newline="") as file:
        csv.writer(file).writerow(("ticket_id", "message", "day", "team"))
        csv.writer(file).writerows((f"x{i}", text, "2026-01-02", team) for i, (text, team) in enumerate(rows))
    return tmp_path / "train.csv"


def settings(table, **options):
    given = {"train_file": str(table), "label_column": "team", "model": "tiny", "store": str(table.parent / "mine")}
    return fitting.FitSettings(**{**given, **options})


@pytest.mark.parametrize("seed", [1, 2])  # The last row is a demonstration, and an anchor.
def test_all_rows_are_in_the_saved_classifier(table, seed):
    done = fitting.building.run(settings(table, demo_shots=1, seed=seed))
    loaded = kp.KNNPrompting.load(table.parent / "mine", done.classifier.lm)
    shown = [example.row for example in loaded.demonstrations_]
    assert sorted([*shown, *loaded.anchors_]) == list(range(8)) and len(shown) == 2
    assert (7 in shown) == (seed == 1)
    assert loaded.num_rows_ == 8
    assert loaded.task.fields == ("message",) and loaded.task.labels == ("billing team", "outage")
    assert "    Message: {message}\n    Team:\n" in fitting.summarize(done)
    assert "which billing team or outage continues" in fitting.summarize(done)


def test_a_declared_task_is_taken_as_it_is(table):
    (table.parent / "support.yaml").write_text(
        'fields: [message]\ntemplate: "{message}\\nWho:"\nlabels: [billing team, outage]\nlabel_words: [money, fault]\n'
    )
    task = str(table.parent / "support.yaml")
    fitted = fitting.building.run(settings(table, task=task, demo_shots=0)).classifier
    assert (fitted.task.label_words, len(fitted.anchors_)) == (("money", "fault"), 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_file": ""}, "train_file='': it is needed, or a change of a saved classifier"),
        ({"train_file": "none.csv"}, "none.csv: cannot read the file"),
        (
            {"label_column": "kind"},
            "train.csv: the file is unlabelled: no row has a 'kind', only ticket_id, message, day, team; name the column",
        ),
        ({"text_columns": ("body",)}, "train.csv:2: lacks the field 'body'"),
        ({"train_file": "", "append": "more.csv"}, "not a saved classifier"),
        ({"knn": options_lib.RuleOptions(k=7), "demo_shots": 1}, "knn.k=7: there are 6 anchors"),
    ],
)
def test_mistakes_are_told_in_one_line(table, options, message):
    with pytest.raises(errors.UserError) as caught:
        fitting.building.run(settings(table, **options))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_what_is_not_named_is_chosen_and_a_second_start_has_nothing_to_do(table):
    rows = [
        (f"ticket {i}: {text}", team)
        for i in range(3)
        for text, team in [(BILLING[i], "billing"), (OUTAGE[i], "outage")]
    ]
    rows += [(f"note {i}: {text}", "outage") for i, text in enumerate(OUTAGE)] + [
        (f"again {i}: {text}", "billing") for i, text in enumerate(BILLING)
    ]
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([("message", "team"), *rows])
    done = fitting.building.run(settings(table))
    choice = done.classifier.choice_
    assert {each.rule.demo_shots for each in choice.candidates} >= {0, 2}
    assert choice.line in fitting.summarize(done)
    assert len(done.classifier.anchors_) == 14 - 2 * choice.rule.demo_shots
    again = fitting.building.run(settings(table))
    assert again.statistics.prompts == 0 and again.classifier.choice_ == choice


def test_numbers_of_demonstrations_are_compared_on_the_same_drawn_rows(table):
    """Twelve of forty rows are drawn; all that are no demonstrations of any number are what it is chosen by."""
    with table.open("w", newline="") as file:
        rows = [(f"ticket {i}: {BILLING[i % 5]}{OUTAGE[i % 3]}", ("billing", "outage")[i % 2]) for i in range(40)]
        csv.writer(file).writerows([("message", "team"), *rows])
    done = fitting.building.run(settings(table, shots=6)).classifier
    assert {each.rule.demo_shots for each in done.choice_.candidates} == {0, 1}
    assert done.choice_.num_anchors == 12 - 2 * 1
    assert len(done.anchors_) == 12 - 2 * done.choice_.rule.demo_shots
    assert done.num_rows_ == 40, "ids of appended rows are no numbers of rows that were not drawn"


def test_small_classes_and_many_neighbours(table, caplog):
    """Nine rows of each class are asked for, of which there are five and three; seven neighbours leave room for one demonstration of
    neither class."""
    done = fitting.building.run(settings(table, shots=9, knn=options_lib.RuleOptions(k=7))).classifier
    assert (len(done.anchors_), len(done.demonstrations_)) == (8, 0)
    (told,) = [
        record.getMessage()
        for record in caplog.records
        if "asked for" in record.getMessage() and "outage" in record.getMessage()
    ]
    assert "class 'outage' (outage) has 3 train rows of the 9 asked for" in told


@pytest.mark.parametrize("shots", [0, 1])
def test_a_row_of_each_class_is_enough(table, shots):
    table.write_text("message,team\nrefund me,billing\nserver error,outage\n")
    done = fitting.building.run(settings(table, shots=shots)).classifier
    assert (sorted(done.anchors_), done.demonstrations_) == ([0, 1], ())


@pytest.mark.parametrize(("limit", "looked_at"), [(1024, (10, 12, 14)), (11, (10, 11, 11))])
def test_what_was_read_to_choose_is_read_once(table, monkeypatch, limit, looked_at):
    """Fourteen rows, after two, one and no demonstrations per class; the process dies before anything is saved."""
    with table.open("w", newline="") as file:
        rows = [(f"ticket {i}: {BILLING[i % 5]} {OUTAGE[i % 3]}", ("billing", "outage")[i % 2]) for i in range(14)]
        csv.writer(file).writerows([("message", "team"), *rows])
    monkeypatch.setattr(evidence, "LIMIT", limit)
    monkeypatch.setattr(demonstrations, "up_to", lambda most, rows: [2, 1, 0])
    read = []
    states = lm.LanguageModel.states
    monkeypatch.setattr(
        lm.LanguageModel,
        "states",
        lambda model, prompts, *rest: (read.append(prompts.num_prompts), states(model, prompts, *rest))[1],
    )
    with monkeypatch.context() as patched:
        patched.setattr(kp.KNNPrompting, "fit_states", None)
        with pytest.raises(TypeError):
            fitting.building.run(settings(table, chunk=5))
    once, chosen = sum(looked_at), sum(read) - sum(looked_at)
    with pytest.raises(errors.UserError, match="an unfinished build that differs in demo_shots: remove it, or choose"):
        fitting.building.run(settings(table, chunk=5, demo_shots=0))
    done = fitting.building.run(settings(table, chunk=5))
    anchors = len(done.classifier.anchors_)
    assert chosen == (anchors if anchors > limit else 0) and sum(read) == once + chosen
    assert done.statistics.prompts == 0
    assert not list(table.parent.glob(".mine.building"))
