"""Changes that are repeated after they died: what is done already is not done again, and links to folders stay links."""

import dataclasses
import pathlib
import shutil

import pytest

import knnprompt_jax as kp
from knnprompt_jax import errors, files
from knnprompt_jax.models.weights import checkpoints
from knnprompt_jax.runs import fitting
from knnprompt_jax.settings import commands
from knnprompt_jax.settings.stores import StoreOptions

MORE = "sentence,label\nday 1 was warm gold,1\nday 2 was grey,0\nday 1 was warm gold,1\n"


@pytest.fixture(scope="module")
def built(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("changing")
    place = {"model": str(world / "model"), "data_dir": str(world / "data"), "store": str(folder / "store")}
    job = commands.FitSettings(**place, task="mr", rule="knn", shots=5, demo_shots=1)
    fitting.run(job)
    return job


@pytest.fixture
def job(built, tmp_path):
    """The settings of a copy of the classifier, which may be changed, and rows to append."""
    (tmp_path / "more.csv").write_text(MORE)
    shutil.copytree(built.store, tmp_path / "store")
    return dataclasses.replace(built, store=str(tmp_path / "store"))


def change(job, **options):
    return fitting.run(commands.FitSettings(store=job.store, **options))


def ids(job):
    return kp.load(job.store).store_.ids_N.tolist()


def test_an_append_that_is_repeated_adds_each_row_once(job, tmp_path, caplog):
    """Deaths in between are tested in `tests.faults.test_stores`."""
    before, append = ids(job), commands.FitSettings(store=job.store, append=str(tmp_path / "more.csv"))
    fitting.run(append)
    after = ids(job)
    assert len(after) == len(before) + 3, "the file has a row twice"
    again = fitting.run(append)
    assert "3 of the 3 rows to append were added already" in fitting.summarize(again)
    assert again.statistics.prompts == 0 and ids(job) == after
    (tmp_path / "more.csv").write_text(f"{MORE}day 9 was calm,1\nday 1 was warm gold,1\n")
    added = f"rows added: 2, ids {after[-1] + 1} to {after[-1] + 2}"
    assert fitting.run(append).notes == (added, "3 of the 5 rows to append were added already")
    assert ids(job) == [*after, after[-1] + 1, after[-1] + 2]
    change(job, remove_ids=(after[-1],))
    # The removed row is added again.
    assert fitting.run(append).notes[1:] == ("4 of the 5 rows to append were added already",)
    assert "count twice" not in caplog.text


def test_rows_of_the_train_file_and_of_python_do_not_count_as_appended(job, tmp_path, caplog):
    classifier = kp.load(job.store)
    anchor = next(iter(classifier.anchors_.values()))
    classifier.partial_fit(["day 2 was grey"], ["0"]).save(job.store, overwrite=True)
    before = ids(job)
    (tmp_path / "more.csv").write_text(
        f"sentence,label\n{anchor.fields['sentence']},{anchor.label}\nday 2 was grey,0\n"
    )
    result = change(job, append=str(tmp_path / "more.csv"))
    assert len(result.notes) == 1 and len(ids(job)) == len(before) + 2
    assert "2 of 2 rows to append repeat rows of the classifier, which now count twice; first: " in caplog.text


def test_a_change_keeps_a_limited_context(job, tmp_path):
    classifier = kp.load(job.store)
    short = kp.LanguageModel.from_pretrained(classifier.model.name, context=64)
    texts = [f"day {number} was {'good' if number % 2 else 'bad'}" for number in range(9)]
    limited = kp.KNNPrompting(short, classifier.task, k=1, demo_shots=0).fit(texts, [str(n % 2) for n in range(9)])
    limited.save(job.store, overwrite=True)
    (tmp_path / "more.csv").write_text("sentence,label\nday 9 was fine,1\n")
    change(job, append=str(tmp_path / "more.csv"))
    assert kp.load(job.store).model.context == 64 and len(ids(job)) == 10


def test_removing_again_says_what_is_gone(job):
    first, second, *left = ids(job)
    change(job, remove_ids=(first,))
    again = change(job, remove_ids=(first, second, first))
    missing = f"ids without an anchor (removed earlier, or not drawn): {first}"
    assert again.notes == (f"anchors removed: 1, ids {second}", missing) and ids(job) == left
    manifest = (pathlib.Path(job.store) / "manifest.json").stat().st_mtime_ns
    assert change(job, remove_ids=(first, second)).notes[0].startswith("ids without an anchor")
    assert (pathlib.Path(job.store) / "manifest.json").stat().st_mtime_ns == manifest, "nothing was to be written"


def test_ids_that_no_anchor_had_are_refused(job):
    shown = kp.load(job.store).demonstrations_[0].row
    for number, reason in (
        (10**6, "is not an anchor: choose from 0 to"),
        (-1, "is not an anchor"),
        (shown, "is a demonstration"),
    ):
        with pytest.raises(errors.UserError, match=f"id {number} {reason}"):
            change(job, remove_ids=(number,))
    with pytest.raises(errors.UserError, match="no anchor would be left"):
        change(job, remove_ids=tuple(ids(job)))


def test_labels_are_corrected_once_and_new_classes_told(job, tmp_path, capsys):
    first, second, *_ = ids(job)
    label = kp.load(job.store).anchors_[first].label
    path, more = tmp_path / "corrections.csv", tmp_path / "more.csv"
    path.write_text(f"id,label,suggested\n{first},{label},{1 - int(label)}\n")
    done = change(job, relabel=str(path))
    assert (
        done.notes
        == (
            "anchors relabelled: 1. If you did not check the new labels, estimates of accuracy, also those of tune, are now too high",
        )
        and done.statistics.prompts == 0
    )
    assert kp.load(job.store).anchors_[first].label == str(1 - int(label))
    assert change(job, relabel=str(path)).notes == ("anchors relabelled: 0",)
    path.write_text(f"id,label\n{'9' * 5000},1\n")
    with pytest.raises(errors.UserError, match="an integer is required"):
        change(job, relabel=str(path))
    path.write_text(f"id,label\n{second},so_so\n")
    more.write_text("sentence,label\nday 1 was dull,dull\n")
    changes = {"relabel": str(path), "append": str(more), "remove_ids": (first,)}
    change(job, **changes)
    messages = capsys.readouterr().err
    assert "new class 'so_so', whose label word is 'so so'" in messages and "new class 'dull', whose" in messages
    loaded = kp.load(job.store)
    assert loaded.task.labels == ("0", "1", "so_so", "dull") and loaded.anchors_[second].label == "so_so"
    assert loaded.anchors_[ids(job)[-1]].label == "dull" and first not in loaded.anchors_
    assert change(job, **changes).notes[-1] == "1 of the 1 rows to append were added already"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 1}, "--seed: has no effect with --append"),
        ({"datastore": StoreOptions(kind="dense")}, "--datastore: has no effect with --append"),
        ({"append": "", "remove_ids": (3,), "on_bad": "skip"}, "--on_bad: has no effect with --remove_ids"),
        ({"append": "", "remove_ids": (3,), "label_column": "team"}, "--label_column: has no effect with --remove_ids"),
        ({"dtype": "bfloat16"}, "--dtype=bfloat16: .* was made with dtype=float32"),
        ({"model": "tiny"}, "made with another model"),
    ],
)
def test_options_without_effect_or_other_than_the_saved_ones_are_refused(job, options, message, monkeypatch, tmp_path):
    monkeypatch.setattr(checkpoints, "load", None)
    with pytest.raises(errors.UserError, match=message):
        change(job, **{"append": str(tmp_path / "more.csv"), **options})


def test_nothing_is_done_while_another_process_writes(job, tmp_path):
    with files.lock(pathlib.Path(job.store)):
        for run in (lambda: fitting.run(job), lambda: change(job, remove_ids=(3,))):
            with pytest.raises(errors.UserError, match="another process is writing to it"):
                run()
