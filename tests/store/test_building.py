"""Builds that die, really killed, and go on: what comes out is what an uninterrupted build makes."""

import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from knnprompt_jax import errors, files
from knnprompt_jax.store import chunks, storage, stores
from tests.store import killed

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def model():
    return killed.make_model()


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    """An uninterrupted build."""
    folder = tmp_path_factory.mktemp("built") / "store"
    return folder, killed.build(folder, model)


def check_equal(got, want):
    for ours, theirs in (got.anchors.keys, want.anchors.keys), (got.codec.constants, want.codec.constants):
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    np.testing.assert_array_equal(got.labels_N, want.labels_N)
    np.testing.assert_array_equal(got.ids_N, want.ids_N)


def start(task, folder):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    # What one start compiled, the next finds.
    compiled = {"JAX_COMPILATION_CACHE_DIR": f"{folder}-compiled", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, str(ROOT / "tests" / "datastore" / "killed.py"), task, str(folder)]
    return subprocess.Popen(command, env=environment | compiled, stdout=subprocess.PIPE, text=True)


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.communicate()


def wait_for(condition, process):
    """Whether the condition came true before the process ended."""
    while process.poll() is None:
        if condition():
            return True
        time.sleep(0.001)
    return False


def test_it_is_the_store_of_the_states(model, whole):
    folder, store = whole
    states, ids = model.states(killed.make_prompts()), killed.PROVENANCE.label_ids
    at_once = stores.build("factored", model.head, states, np.arange(killed.NUM_PROMPTS) % 3, ids)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), store.anchors.keys, at_once.anchors.keys)
    check_equal(storage.open_folder(folder, killed.PROVENANCE).load(model.head), store)
    assert [path.name for path in folder.parent.iterdir()] == ["store"]


def test_killed_at_random_moments_it_ends_the_same(model, whole, tmp_path):
    """While chunks are computed and written, and while the store is."""
    rng, folder = np.random.default_rng(11), tmp_path / "store"
    unfinished = tmp_path / ".store.building"
    kills = []
    for least in (*np.sort(rng.choice(np.arange(1, 10), 2, replace=False)), None):
        process = start("build", folder)

        def has_come_far_enough(least=least):
            if least is None:
                return files.draft(folder).exists()
            return len(list(unfinished.glob("chunk-*"))) >= least

        if wait_for(has_come_far_enough, process):
            time.sleep(rng.uniform(0, 0.05))
            kills.append(least)
        kill(process)
    assert len(kills) == 3
    with start("build", folder) as process:
        assert process.wait() == 0
    loaded = storage.open_folder(folder, killed.PROVENANCE).load(model.head)
    check_equal(loaded, whole[1])
    assert {path.name for path in tmp_path.iterdir()} == {"store", "store-compiled"}


def test_overwriting_killed_at_random_moments(tmp_path):
    """What is left is the one store or the other, whole."""
    rng, folder = np.random.default_rng(13), tmp_path / "store"
    both = {size: killed.make_store(size) for size in killed.SIZES}
    storage.save(folder, both[31], killed.PROVENANCE)
    for _ in range(3):
        process = start("overwrite", folder)
        process.stdout.readline()
        time.sleep(rng.uniform(0, 0.6))
        assert process.poll() is None
        kill(process)
        found = storage.open_folder(folder, killed.PROVENANCE).load(both[31].codec.head)
        check_equal(found, both[len(found)])


def halt(after):
    """A progress report that stops the build after so many prompts."""

    def report(prompts, tokens):
        report.done += prompts
        if report.done >= after:
            raise KeyboardInterrupt

    report.done = 0
    return report


@pytest.fixture
def half(model, tmp_path):
    """The folder of a build that stopped halfway."""
    with pytest.raises(KeyboardInterrupt):
        killed.build(tmp_path / "store", model, progress=halt(60))
    return tmp_path / "store"


def test_finished_chunks_are_not_computed_again(half, model, whole):
    done = len(list((half.parent / ".store.building").glob("chunk-*")))
    reports, before = [], model.statistics.prompts
    store = killed.build(half, model, progress=lambda prompts, tokens: reports.append(prompts))
    assert done == 5 and reports[0] == 5 * killed.CHUNK and sum(reports) == killed.NUM_PROMPTS
    assert model.statistics.prompts - before == killed.NUM_PROMPTS - 5 * killed.CHUNK
    check_equal(store, whole[1])


@pytest.mark.parametrize(
    "damage", [lambda path: path.unlink(), lambda path: os.truncate(path, 99), lambda path: path.write_bytes(b"")]
)
def test_a_damaged_chunk_is_computed_again(damage, half, model, whole):
    damage(half.parent / ".store.building" / "chunk-000002")
    before = model.statistics.prompts
    check_equal(killed.build(half, model), whole[1])
    assert model.statistics.prompts - before == killed.NUM_PROMPTS - 4 * killed.CHUNK


def test_another_kind_goes_on_with_the_same_states(half, model):
    before = model.statistics.prompts
    assert killed.build(half, model, kind="dense", key_dtype="bfloat16").codec.kind == "dense"
    assert model.statistics.prompts - before == killed.NUM_PROMPTS - 5 * killed.CHUNK


def test_an_unfinished_build_of_something_else_is_told(half, model):
    with pytest.raises(errors.UserError, match="an unfinished build that differs in chunk: remove it, or choose"):
        killed.build(half, model, chunk=13)


def test_a_finished_store_is_loaded(model, whole, tmp_path):
    folder = tmp_path / "store"
    shutil.copytree(whole[0], folder)
    before = model.statistics.prompts
    for on_host in (False, True):
        store = killed.build(folder, model, on_host=on_host, memory_mb=77)
        check_equal(store, whole[1])
        assert store.anchors.on_host == on_host and store.memory_mb == 77
    assert model.statistics.prompts == before


def test_another_store_is_overwritten_on_demand_alone(model, whole, tmp_path):
    folder = tmp_path / "store"
    shutil.copytree(whole[0], folder)
    with pytest.raises(errors.UserError, match="holds a factored store of other anchors or options; choose another"):
        killed.build(folder, model, key_dtype="float16")
    assert killed.build(folder, model, key_dtype="float16", overwrite=True).codec.key_dtype == "float16"
    (folder / "manifest.json").write_text("{")
    with pytest.raises(errors.UserError, match="damaged"):
        killed.build(folder, model)
    check_equal(killed.build(folder, model, overwrite=True), whole[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk": 0}, "chunk=0: at least 1 prompt"),
        ({"kind": "sparse"}, "kind='sparse': choose from dense, factored"),
        ({"key_dtype": "int8"}, "key_dtype='int8': choose from float32"),
    ],
)
def test_mistakes_are_told_before_anything_is_computed(options, message, model, tmp_path):
    with pytest.raises(errors.UserError, match=message):
        killed.build(tmp_path / "store", model, progress=halt(0), **options)
    assert not list(tmp_path.iterdir())


def test_chunks_are_read_as_written(tmp_path):
    rng = np.random.default_rng(5)
    states = killed.lm.States(rng.normal(size=(7, 3)).astype(np.float32), rng.normal(size=7).astype(np.float32))
    chunks.write(tmp_path, 0, states)
    chunks.write(tmp_path, 1, states[np.arange(2)])
    both = chunks.read_all(tmp_path, 2)
    np.testing.assert_array_equal(both.hidden_NE, np.concatenate([states.hidden_NE, states.hidden_NE[:2]]))
    np.testing.assert_array_equal(both.log_z_N, np.concatenate([states.log_z_N, states.log_z_N[:2]]))
    assert chunks.read(tmp_path, 2) is None


def test_ids_and_classes_are_part_of_what_anchors_are():
    prompts, labels = killed.make_prompts(5), [0, 1, 2, 0, 1]
    hash_of = killed.building.prompts_hash
    other = dataclasses.replace(prompts, groups=prompts.groups[:1])
    found = {
        hash_of(prompts, labels, range(5)),
        hash_of(prompts, labels[::-1], range(5)),
        hash_of(prompts, labels, range(1, 6)),
        hash_of(other, labels, range(5)),
    }
    assert len(found) == 4
