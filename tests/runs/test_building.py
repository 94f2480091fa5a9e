"""Building, changing and evaluating a saved classifier, from settings to table, on a small world."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax import errors, lm
from knnprompt_jax.runs import building, comparison, overview, settings, tuning
from knnprompt_jax.store.store import StoreOptions
from tests.runs.conftest import choosing

SHARED = {"task": "mr", "shots": 9, "demo_shots": 2}
KINDS = {"dense": StoreOptions(kind="dense"), "factored": StoreOptions(kind="factored")}


@pytest.fixture(scope="module")
def shared(world):
    return {**SHARED, "model": str(world / "model"), "data_dir": str(world / "data")}


@pytest.fixture(scope="module")
def built(shared, tmp_path_factory):
    """Classifiers with a dense and a factored store of the same anchors, and the results of building them."""
    folder = tmp_path_factory.mktemp("classifiers")
    jobs = {
        kind: settings.BuildSettings(**shared, store=str(folder / kind), datastore=own, chunk=5)
        for kind, own in KINDS.items()
    }
    return folder, {kind: building.run(job) for kind, job in jobs.items()}


def test_the_table_tells_sizes_and_costs(built):
    vocabulary, width = built[1]["dense"].classifier.lm.head.rows_VE.shape
    for kind, numbers in (("dense", vocabulary), ("factored", width + 1)):
        text = building.summarize(built[1][kind])
        assert f"14 anchors of {4 * numbers:,} bytes" in text
        assert "14 anchors computed" in text and "anchors/s" in text
        assert f"datastore: {kind} float32 on the device, 14 anchors" in text and "per tile" in text
    assert np.bincount(built[1]["factored"].classifier.store_.labels_N).tolist() == [7, 7]


def test_as_many_demonstrations_as_the_context_holds_by_default(shared, tmp_path):
    result = building.run(settings.BuildSettings(**shared | {"demo_shots": -1}, store=str(tmp_path / "store")))
    assert result.classifier.demo_shots == 2 and len(result.classifier.demonstrations_) == 4


def test_ids_are_rows_of_the_train_file(built, world):
    store = kp.KNNPrompting.load(built[0] / "dense").store_
    rows = [json.loads(line) for line in (world / "data/mr/train.jsonl").read_text().splitlines()]
    assert [int(rows[index]["label"]) for index in store.ids_N] == store.labels_N.tolist()


@pytest.mark.parametrize(
    ("options", "knn", "store"),
    [
        (KINDS["dense"], {}, ""),
        (KINDS["dense"], {"distance": "released"}, ""),
        (StoreOptions(placement="host"), {}, ""),
        (StoreOptions(), {"approximate_recall": 0.9}, ""),
        (StoreOptions(), {}, "dense"),
        (StoreOptions(placement="host"), {}, "dense"),
        (StoreOptions(), {"distance": "partial"}, "factored"),
        (StoreOptions(), {"centroid": "arithmetic"}, "dense"),
    ],
)
def test_no_store_changes_a_prediction(options, knn, store, job, built):
    job = dataclasses.replace(job, seeds=(1,))
    asked = {name: value for name, value in knn.items() if name != "approximate_recall"}
    place = str(built[0] / store) if store else ""
    plain = comparison.run(choosing(job, knn=asked))
    other = comparison.run(choosing(dataclasses.replace(job, datastore=options, store=place), knn=knn))
    assert [record.predicted for record in other] == [record.predicted for record in plain]
    described = other[1].datastore
    anchors = 2 if "centroid" in knn else 14
    assert described["anchors"] == anchors and described["search_bytes"] <= 512 * 2**20
    assert described["placement"] == (options.placement if "centroid" not in knn else "device")
    assert other[1].prompts == (13 if store else 27)  # The anchors of a saved classifier are not read again.
    numbers = [[counts["anchors"] for counts in one[0].class_counts.values()] for one in (plain, other)]
    assert numbers[0] == numbers[1]
    assert f"{anchors} anchors of" in overview.of_comparison(other)


def test_every_binary_that_takes_a_store_takes_this_folder(built):
    folder = built[0] / "factored"
    tried = tuning.run(tuning.TuningSettings(store=str(folder), k=(1, 3))).tuning.choice
    assert tried.num_anchors == 14 and {each.rule.k for each in tried.candidates if each.rule.rule == "knn"} == {1, 3}
    assert set(kp.KNNPrompting.load(folder).predict(["day 1 was cold rain"])) <= {"0", "1"}


def test_an_interrupted_or_finished_build_goes_on(shared, tmp_path, monkeypatch):
    job = settings.BuildSettings(**shared, store=str(tmp_path / "store"), chunk=5)
    states, calls = lm.LanguageModel.states, []

    def interrupted(self, *arguments):
        calls.append(len(calls))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return states(self, *arguments)

    monkeypatch.setattr(lm.LanguageModel, "states", interrupted)
    with pytest.raises(KeyboardInterrupt):
        building.run(job)
    first = building.run(job)
    assert len(calls) == 4 and first.statistics.prompts == 4, "the third chunk alone"
    again = building.run(job)
    assert again.statistics.prompts == 0 and "nothing to compute" in building.summarize(again)
    jax.tree.map(np.testing.assert_array_equal, again.classifier.store_.anchors, first.classifier.store_.anchors)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    with pytest.raises(errors.UserError, match="holds a classifier of other anchors or options"):
        building.run(dataclasses.replace(job, seed=2))
    assert building.run(dataclasses.replace(job, seed=2, overwrite=True)).statistics.prompts == 14


def test_appending_and_removing_compute_nothing_else(shared, job, tmp_path):
    """Anchors appended and the same ones removed again leave the classifier that was built."""
    build = settings.BuildSettings(**shared, store=str(tmp_path / "store"))
    before = building.run(build).classifier.store_
    (tmp_path / "more.csv").write_text("sentence,label\nday 1 was warm gold,1\nday 2 was grey,0\nday 3 was sun,1\n")
    grown = building.run(dataclasses.replace(build, append=str(tmp_path / "more.csv")))
    assert grown.statistics.prompts == 3 and np.bincount(grown.classifier.store_.labels_N).tolist() == [8, 9]
    new = int(before.ids_N.max()) + np.arange(1, 4)
    np.testing.assert_array_equal(kp.KNNPrompting.load(build.store).store_.ids_N, [*before.ids_N, *new])
    done = comparison.run(dataclasses.replace(job, store=build.store))
    assert done[1].class_counts["1"]["anchors"] == 9
    shrunk = building.run(dataclasses.replace(build, remove_ids=tuple(new.tolist())))
    assert shrunk.statistics.prompts == 0 and "nothing to compute" in building.summarize(shrunk)
    jax.tree.map(np.testing.assert_array_equal, kp.KNNPrompting.load(build.store).store_.anchors, before.anchors)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"dtype": "bfloat16"}, "made with another dtype of the model: 'float32' there, 'bfloat16' here"),
        ({"truncation": "error"}, "made with another truncation: 'left' there, 'error' here"),
        ({"label_token": "first"}, "made with another label_token: 'last' there, 'first' here"),
        ({"task": "demo", "data_dir": ""}, "made with another task"),
        ({"store": "nowhere"}, "nowhere: not a saved classifier"),
    ],
)
def test_a_classifier_that_does_not_suit_is_told_before_weights_load(own, message, job, built, tmp_path, monkeypatch):
    monkeypatch.setattr(lm.LanguageModel, "from_files", None)
    with pytest.raises(errors.UserError, match=message):
        comparison.run(dataclasses.replace(job, **{"store": str(built[0] / "dense"), **own}))
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"store": ""}, "store=''"),
        ({"chunk": 0}, "chunk=0"),
        ({"shots": 3, "knn": dataclasses.replace(settings.KNNOptions(), k=5)}, "k=5: there are 2 anchors"),
        ({"append": "none.csv", "store": "nowhere"}, "nowhere: not a saved classifier"),
        ({"remove_ids": (3,), "store": "nowhere"}, "nowhere: not a saved classifier"),
    ],
)
def test_mistakes_show_before_weights_load(own, message, shared, tmp_path, monkeypatch):
    monkeypatch.setattr(lm.LanguageModel, "from_files", None)
    with pytest.raises(errors.UserError, match=message):
        building.run(settings.BuildSettings(**{**shared, "store": str(tmp_path / "store"), **own}))
    assert not list(tmp_path.iterdir())
