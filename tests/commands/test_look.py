"""The page of a saved classifier's anchors."""

import pytest

import knnprompt_jax as kp
from knnprompt_jax import tasks
from knnprompt_jax.cli import command_settings as commands
from knnprompt_jax.commands import look_job

SCRIPT = "<script>alert('$1 & $2')</script>"


@pytest.fixture(scope="module")
def classifier() -> "kp.KNNPrompting":
    """Fitted on rows of the demo task, of which one is a script and one occurs twice."""
    task = tasks.get("demo")
    rows = tasks.load_rows(task, "train")[:60]
    texts = [row.fields["sentence"] for row in rows]
    labels = [row.label for row in rows]
    model = kp.demo_model("tiny")
    return kp.KNNPrompting(model, task, demo_shots=1).fit([*texts, SCRIPT, texts[31]], [*labels, labels[0], labels[31]])


@pytest.fixture(scope="module")
def saved(classifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "mine"
    classifier.save(folder)
    return folder


def test_the_page_has_every_part_and_no_active_text(saved, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text(f'sentence\n"{SCRIPT} again"\nA lighthouse.\nA crown.\n')
    output = tmp_path / "page"
    job = commands.LookSettings(classifier=str(saved), input=str(new), budget=2, output=str(output))
    printed = look_job.run(job)
    assert printed.startswith("labels to check: 10 of 56\nrows to label: 2, at the end of the table\ntable: ")
    assert f"\npage: {output / 'index.html'}\nnext: " in printed
    text = (output / "index.html").read_text(encoding="utf-8")
    for name in ("to_label", "suspects"):
        assert f'<section id="{name}">' in text
    assert "56 anchors of task demo" in text and SCRIPT not in text


def test_earlier_tables_are_kept_even_those_edited_while_the_page_is_drawn(saved, tmp_path, monkeypatch):
    settings = commands.LookSettings(classifier=str(saved), output=str(tmp_path))
    edited = tmp_path / commands.TABLE
    build = look_job.build

    def slow(*arguments):
        edited.write_text("edited")
        return build(*arguments)

    monkeypatch.setattr(look_job, "build", slow)
    look_job.run(settings)
    assert edited.read_text() == "edited"
    assert all(f"table: {tmp_path / 'table-2.csv'}\n" in look_job.run(settings) for _ in range(2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "table-2.csv", "table.csv"]
