"""Building, changing and starting from a saved datastore, from settings to table, on a small world."""

import dataclasses
import json
import pathlib

import jax
import numpy as np
import pytest

from knnprompt_jax import errors, lm
from knnprompt_jax.runs import datastore_job, main_job, settings
from knnprompt_jax.store import manifest, storage

SHARED = {"task": "mr", "shots": 9, "demo_shots": 2}


@pytest.fixture(scope="module")
def shared(world):
    return {**SHARED, "model": str(world / "model"), "data_dir": str(world / "data")}


@pytest.fixture(scope="module")
def built(shared, tmp_path_factory):
    """A dense store and a factored one of the same anchors, and the results of building them."""
    folder = tmp_path_factory.mktemp("stores")
    options = {"dense": {}, "factored": {"datastore_kind": "factored", "direction": "released", "chunk": 5}}
    jobs = {kind: settings.BuildSettings(**shared, store=str(folder / kind), **own) for kind, own in options.items()}
    return folder, {kind: datastore_job.run(job) for kind, job in jobs.items()}


def load(folder: pathlib.Path, world):
    head_VE = lm.LanguageModel.from_pretrained(str(world / "model")).head
    return storage.open_folder(folder, manifest.read(folder).provenance).load(head_VE)


def main_settings(shared, tmp_path, **own):
    return settings.RunSettings(**{**shared, "seeds": (1,), "output": str(tmp_path / "records"), **own})


def predictions(records):
    return [record.predicted for record in records]


def test_the_table_tells_sizes_and_costs(built):
    vocabulary, width = built[1]["dense"].prepared.model_config.vocab_size, 24
    for kind, result in built[1].items():
        text = datastore_job.summarize(result)
        assert f"{4 * vocabulary:,}" in text and "14 anchors computed" in text and "anchors/s" in text
        assert f"datastore: {kind} float32 on the device, 14 anchors" in text and "a tile" in text
    assert built[1]["dense"].bytes_per_anchor == {"dense": 4 * vocabulary, "factored": 4 * (width + 1)}
    assert built[1]["factored"].datastore["bytes_per_anchor"] == 8 * (width + 1)
    assert built[1]["factored"].class_counts == {"0": 7, "1": 7}


def test_ids_are_rows_of_the_train_file(built, world):
    store = load(built[0] / "dense", world)
    rows = [json.loads(line) for line in (world / "data/mr/train.jsonl").read_text().splitlines()]
    assert [int(rows[index]["label"]) for index in store.ids_N] == store.labels_N.tolist()


@pytest.mark.parametrize(
    "own",
    [
        {"datastore_kind": "factored"},
        {"datastore_kind": "factored", "direction": "released"},
        {"datastore_placement": "host"},
        {"datastore_approximate_recall": 0.9},
        {"store": "dense"},
        {"store": "dense", "datastore_placement": "host"},
        {"store": "factored", "direction": "released"},
        {"store": "factored", "representation": "partial"},
        {"store": "dense", "centroid": "arithmetic"},
    ],
    ids=lambda own: ",".join(f"{name.removeprefix('datastore_')}={value}" for name, value in own.items()),
)
def test_no_datastore_changes_a_prediction(own, shared, built, tmp_path):
    if "store" in own:
        own = {**own, "store": str(built[0] / own["store"])}
    asked = {name: own[name] for name in ("direction", "representation", "centroid") if name in own}
    plain, found = (main_job.run(main_settings(shared, tmp_path, **one)) for one in (asked, own))
    assert predictions(found) == predictions(plain)
    described = found[1].datastore
    anchors = 2 if "centroid" in own else 14
    assert described["anchors"] == anchors and described["placement"] == own.get("datastore_placement", "device")
    assert described["search_bytes"] <= 512 * 2**20
    assert found[0].prompts == (13 if "store" in own else 27)  # The anchors of a saved store are not read again.
    assert found[0].class_counts == plain[0].class_counts
    assert f"{anchors} anchors of" in main_job.summarize(found)


def test_appending_and_removing_compute_nothing_else(shared, built, world, tmp_path):
    """Anchors appended and the same ones removed again leave the store that was built."""
    build = settings.BuildSettings(**shared, store=str(tmp_path / "store"), datastore_kind="factored")
    datastore_job.run(build)
    before = load(tmp_path / "store", world)
    (tmp_path / "more.csv").write_text("sentence,label\nday 1 was warm gold,1\nday 2 was grey,0\nday 3 was sun,1\n")
    grown = datastore_job.run(dataclasses.replace(build, append=str(tmp_path / "more.csv")))
    assert grown.statistics.prompts == 3 and grown.class_counts == {"0": 8, "1": 9}
    new = int(before.ids_N.max()) + np.arange(1, 4)
    np.testing.assert_array_equal(load(tmp_path / "store", world).ids_N, [*before.ids_N, *new])
    found = main_job.run(main_settings(shared, tmp_path, store=str(tmp_path / "store")))
    assert found[1].class_counts["1"]["anchors"] == 9
    shrunk = datastore_job.run(dataclasses.replace(build, remove_ids=tuple(new.tolist())))
    assert shrunk.statistics.prompts == 0 and "nothing to compute" in datastore_job.summarize(shrunk)
    after = load(tmp_path / "store", world)
    jax.tree.map(np.testing.assert_array_equal, after.anchors, before.anchors)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"seeds": (1, 2)}, "seeds=\\(1, 2\\): a saved store has the demonstrations of one seed"),
        ({"seeds": (2,)}, "made with other demonstrations"),
        ({"demo_shots": 1}, "made with other demonstrations"),
        ({"dtype": "bfloat16"}, "made with another dtype of the model: 'float32' there, 'bfloat16' here"),
        ({"truncation": "error"}, "made with another truncation"),
        ({"label_token": "first"}, "made with other tokens of the label words"),
        ({"task": "sst2"}, "no such folder"),
        ({"representation": "hidden"}, "choose from distribution, partial, partial_raw, which this dense store has"),
        ({"store": "nowhere"}, "nowhere: not a saved datastore"),
    ],
)
def test_a_store_that_does_not_suit_is_told_before_weights_load(own, message, shared, built, tmp_path, monkeypatch):
    if own.get("label_token"):
        monkeypatch.setattr(main_job.preparation.layout, "label_ids", lambda *_: [1, 2])
    monkeypatch.setattr(lm.LanguageModel, "from_pretrained", None)
    with pytest.raises(errors.UserError, match=message):
        main_job.run(main_settings(shared, tmp_path, **{"store": str(built[0] / "dense"), **own}))
    assert not (tmp_path / "records").exists()


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"store": ""}, "store='': give the folder"),
        ({"chunk": 0}, "chunk=0"),
        ({"datastore_kind": "sparse"}, "choose from dense, factored"),
        ({"datastore_key_dtype": "int8"}, "choose from float32, float16, bfloat16"),
        ({"datastore_placement": "disk"}, "choose from device, host"),
        ({"datastore_memory_mb": 0}, "datastore_memory_mb=0: at least 1"),
        ({"seeds": (1, 2)}, "one seed"),
        ({"append": "none.csv"}, "none.csv"),
        ({"remove_ids": (3,), "store": "nowhere"}, "nowhere: not a saved datastore"),
    ],
)
def test_mistakes_show_before_weights_load(own, message, shared, tmp_path, monkeypatch):
    monkeypatch.setattr(lm.LanguageModel, "from_pretrained", None)
    with pytest.raises(errors.UserError, match=message):
        datastore_job.run(settings.BuildSettings(**{**shared, "store": str(tmp_path / "store"), **own}))
    assert not list(tmp_path.iterdir())
