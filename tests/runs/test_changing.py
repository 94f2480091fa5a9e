"""Changes that are repeated after they died: what is done already is not done again, and links to folders stay links."""

import dataclasses
import os
import pathlib
import subprocess
import sys

import pytest

import knnprompt_jax as kp
from knnprompt_jax import errors, files
from knnprompt_jax.runs import building, settings

ROOT = pathlib.Path(__file__).resolve().parents[2]
MORE = "sentence,label\nday 1 was warm gold,1\nday 2 was grey,0\nday 1 was warm gold,1\n"


class Died(BaseException):
    pass


@pytest.fixture(scope="module")
def built(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("changing")
    job = settings.BuildSettings(
        model=str(world / "model"),
        task="mr",
        data_dir=str(world / "data"),
        shots=5,
        demo_shots=1,
        store=str(folder / "store"),
    )
    building.run(job)
    return job


@pytest.fixture
def job(built, tmp_path):
    """The job of a copy of the classifier, which may be changed, and its rows to append."""
    (tmp_path / "more.csv").write_text(MORE)
    job = dataclasses.replace(built, store=str(tmp_path / "store"))
    subprocess.run(["cp", "-r", built.store, job.store], check=True)
    return job


def ids(job):
    return kp.KNNPrompting.load(job.store).store_.ids_N.tolist()


def test_a_killed_append_that_is_repeated_adds_each_row_once(job, tmp_path, monkeypatch):
    """Killed after the new folder is in its place, as between any two steps."""
    before, append = ids(job), dataclasses.replace(job, append=str(tmp_path / "more.csv"))
    finish = files.finish_folder

    def killed(path):
        finish(path)
        raise Died

    with monkeypatch.context() as patched, pytest.raises(Died):
        patched.setattr(files, "finish_folder", killed)
        building.run(append)
    after = ids(job)
    assert len(after) == len(before) + 3, "the file has a row twice"
    again = building.run(append)
    assert "3 of the 3 rows to append were there already" in building.summarize(again)
    assert again.statistics.prompts == 0 and ids(job) == after
    (tmp_path / "more.csv").write_text(f"{MORE}day 9 was calm,1\nday 1 was warm gold,1\n")
    grown = building.run(settings.BuildSettings(store=job.store, append=append.append))  # Its model is the folder's.
    assert "3 of the 5 rows to append were there already" in building.summarize(grown)
    assert ids(job) == [*after, after[-1] + 1, after[-1] + 2]
    building.run(dataclasses.replace(job, remove_ids=(after[-1],)))
    assert "4 of the 5 rows" in building.summarize(building.run(append)), "what was removed is added again"


def test_rows_of_the_train_file_and_of_python_do_not_count_as_appended(job, tmp_path):
    classifier = kp.KNNPrompting.load(job.store)
    anchor = next(iter(classifier.anchors_.values()))
    classifier.partial_fit(["day 2 was grey"], ["0"]).save(job.store, overwrite=True)
    before = ids(job)
    (tmp_path / "more.csv").write_text(
        f"sentence,label\n{anchor.fields['sentence']},{anchor.label}\nday 2 was grey,0\n"
    )
    result = building.run(dataclasses.replace(job, append=str(tmp_path / "more.csv")))
    assert not result.notes and len(ids(job)) == len(before) + 2


def test_removing_again_says_what_is_gone(job):
    first, second, *left = ids(job)
    building.run(dataclasses.replace(job, remove_ids=(first,)))
    again = building.run(dataclasses.replace(job, remove_ids=(first, second, first)))
    assert again.notes == (f"ids that are no anchors any more: {first}",) and ids(job) == left
    manifest = (pathlib.Path(job.store) / "manifest.json").stat().st_mtime_ns
    assert building.run(dataclasses.replace(job, remove_ids=(first, second))).notes
    assert (pathlib.Path(job.store) / "manifest.json").stat().st_mtime_ns == manifest, "nothing was to be written"


def test_ids_that_no_anchor_had_are_refused(job):
    shown = kp.KNNPrompting.load(job.store).demonstrations_[0].row
    for number, reason in ((10**6, "choose from 0 to"), (-1, "choose from 0 to"), (shown, "it is a demonstration's")):
        with pytest.raises(errors.UserError, match=f"id {number} is no anchor's: {reason}"):
            building.run(dataclasses.replace(job, remove_ids=(number,)))
    with pytest.raises(errors.UserError, match="no anchor would be left"):
        building.run(dataclasses.replace(job, remove_ids=tuple(ids(job))))


def test_labels_are_corrected_once_and_new_classes_told(job, tmp_path, capsys):
    first, second, *_ = ids(job)
    loaded = kp.KNNPrompting.load(job.store)
    labels = {number: loaded.anchors_[number].label for number in (first, second)}
    other = {number: str(1 - int(label)) for number, label in labels.items()}
    path = tmp_path / "corrections.csv"
    path.write_text(f"id,label,suggested\n{first},{labels[first]},{other[first]}\n{second},{labels[second]},\n")
    correct = settings.BuildSettings(store=job.store, relabel=str(path))
    done = building.run(correct)
    assert done.notes == ("1 anchor has another label now",) and done.statistics.prompts == 0
    loaded = kp.KNNPrompting.load(job.store)
    assert [loaded.anchors_[number].label for number in (first, second)] == [other[first], labels[second]]
    manifest = (pathlib.Path(job.store) / "manifest.json").stat().st_mtime_ns
    assert building.run(correct).notes == ("0 anchors have another label now",)
    assert (pathlib.Path(job.store) / "manifest.json").stat().st_mtime_ns == manifest, "nothing was to be written"
    path.write_text(f"id,label\n{second},so_so\n")
    (tmp_path / "more.csv").write_text("sentence,label\nday 1 was dull,dull\n")
    changed = dataclasses.replace(correct, append=str(tmp_path / "more.csv"), remove_ids=(first,))
    building.run(changed)
    told = capsys.readouterr().err
    assert "new class 'so_so', whose label word is 'so so'" in told and "new class 'dull', whose" in told
    loaded = kp.KNNPrompting.load(job.store)
    assert loaded.task.labels == ("0", "1", "so_so", "dull") and loaded.anchors_[second].label == "so_so"
    assert loaded.anchors_[ids(job)[-1]].label == "dull" and first not in loaded.anchors_
    assert building.run(changed).notes[-1] == "1 of the 1 rows to append were there already"


def test_a_link_stays_one_when_its_classifier_is_built_changed_and_overwritten(job, tmp_path):
    target, link = tmp_path / "elsewhere" / "store", tmp_path / "link"
    target.parent.mkdir()
    os.rename(job.store, target)
    link.symlink_to(target, target_is_directory=True)
    linked = dataclasses.replace(job, store=str(link), append=str(tmp_path / "more.csv"))
    count = len(ids(linked))
    assert building.run(dataclasses.replace(linked, append="")).statistics.prompts == 0, "it is built already"
    building.run(linked)
    (tmp_path / "more.csv").write_text("sentence,label\nday 3 was sun,1\n")
    building.run(linked)
    kp.KNNPrompting.load(link).save(link, overwrite=True)
    building.run(dataclasses.replace(linked, append="", overwrite=True, seed=2))
    assert link.is_symlink() and link.resolve() == target and len(ids(linked)) == count
    assert [path.name for path in target.parent.iterdir()] == ["store"]


def test_a_link_to_nothing_is_told(job, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for changed in (job, dataclasses.replace(job, append=str(tmp_path / "more.csv"))):
        with pytest.raises(errors.UserError, match="gone") as caught:
            building.run(dataclasses.replace(changed, store=str(tmp_path / "link")))
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("change", [{}, {"append": "more.csv"}, {"remove_ids": (3,)}])
def test_nothing_is_done_while_another_process_writes(job, change, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with files.lock(pathlib.Path(job.store)):
        with pytest.raises(errors.UserError, match="another process is writing to it"):
            building.run(dataclasses.replace(job, **change))
        with pytest.raises(errors.UserError, match="another process is writing to it"):
            kp.KNNPrompting.load(job.store).save(job.store, overwrite=True)


def start(job, **options):
    told = {"model": job.model, "task": job.task, "data_dir": job.data_dir, "shots": 5, "demo_shots": 1, **options}
    command = [sys.executable, str(ROOT / "experiments" / "fit.py"), "--knn.rule=knn"]
    command += [f"--{name}={value}" for name, value in told.items()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("appends", [True, False])
def test_of_two_processes_at_once_one_works_and_the_other_says_so(job, tmp_path, appends):
    """Both build one classifier, or append to one: in the end it is whole, and each row is there once."""
    count = len(ids(job))
    options = {"store": job.store, "append": tmp_path / "more.csv"} if appends else {"store": tmp_path / "new"}
    running = [start(job, **options) for _ in range(2)]
    told = [process.communicate(timeout=500)[1] for process in running]
    assert 0 in (codes := [process.returncode for process in running]) and set(codes) <= {0, 2}
    for process, text in zip(running, told, strict=True):
        if process.returncode:
            assert text.strip().splitlines()[-1].startswith("error: ") and "another process is writing to it" in text
            assert "Traceback" not in text
    assert len(kp.KNNPrompting.load(options["store"]).store_) == count + 3 * appends
