"""Which predictions rounding decides: the vote by brute force over all distances within their bounds; real runs that differ."""

import itertools
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax import lm
from knnprompt_jax.classifier import inputs, rounding
from knnprompt_jax.store import distances, kernel
from knnprompt_jax.store import store as store_lib
from tests.classifier.conftest import PLAIN

ROOT = pathlib.Path(__file__).resolve().parents[2]


def near(distances_QK, labels_QK):
    return kernel.Neighbours(distances_QK, np.broadcast_to(np.arange(labels_QK.shape[1]), labels_QK.shape), labels_QK)


def vote(labels_k, tie_break):
    counts = np.bincount(labels_k, minlength=3)
    leaders = np.flatnonzero(counts == counts.max()).tolist()
    return leaders[0] if tie_break == "lowest" else next(label for label in labels_k.tolist() if label in leaders)


def outcomes(low_N, high_N, labels_N, k, tie_break):
    """Every majority that distances at either of their bounds give: as many as any order that the bounds allow."""
    votes = set()
    for distances_N in itertools.product(*zip(low_N, high_N, strict=True)):
        votes.add(vote(labels_N[np.argsort(distances_N, kind="stable")[:k]], tie_break))
    return votes


@pytest.mark.parametrize("tie_break", ["lowest", "nearest"])
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_what_can_change_is_marked_and_what_cannot_rarely(k, tie_break):
    """Of 7 anchors 6 or all are looked at; marked is at least what brute force changes, and seldom more where all are."""
    rng, changing, marked = np.random.default_rng(k), [], []
    for looked_at in (6, 7):
        for _ in range(40):
            distances_N = np.sort(rng.integers(0, 29, 7) / 7)
            labels_N, move = rng.integers(0, 3, 7), rng.choice([0.01, 0.2, 0.5])
            low_N, high_N = distances_N - move, distances_N + move
            bounds = low_N[None, :looked_at], high_N[None, :looked_at]
            seen = near(distances_N[None, :looked_at], labels_N[None, :looked_at])
            own = vote(labels_N[:k], tie_break)
            [says] = rounding.by_votes(seen, bounds, k, 7, np.array([own]), tie_break)
            changes = outcomes(low_N, high_N, labels_N, k, tie_break) != {own}
            assert says or not changes
            if looked_at == 7:
                changing.append(changes)
                marked.append(says)
    assert 0 < sum(changing) < len(changing) and sum(marked) <= 1.7 * sum(changing)


def test_scores_are_marked_by_their_ratio(fitted, rows):
    """The same ratio counts for bfloat16, and not for float32."""
    states = fitted.read(inputs.queries(fitted.task, rows[0][:4]))
    p_QC = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.4 + 1e-9, 0.2, 0.4], [1.0, 0.0, 0.0]])
    assert rounding.by_scores(p_QC, fitted.lm, states, 1).tolist() == [True, False, True, False]
    assert rounding.by_scores(p_QC[:, :1], fitted.lm, states, 1).tolist() == [False] * 4
    near = np.tile([0.501, 0.499], (4, 1))
    assert not rounding.by_scores(near, fitted.lm, states, 2).any()
    assert rounding.by_scores(near, kp.demo_model("tiny", dtype="bfloat16"), states, 2).all()


@pytest.mark.parametrize("distance", [name for name in distances.DISTANCES if "raw" not in name])
def test_bounds_hold_what_bfloat16_makes_of_a_distance(distance, model, task, rows):
    """The distances of the same pairs, by the model's float32 and bfloat16 weights, lie within the bounds of the latter."""
    got = []
    for dtype in ("float32", "bfloat16"):
        read = model if dtype == "float32" else kp.demo_model("tiny", dtype=dtype)
        classifier = kp.KNNPrompting(read, task, k=1, demo_shots=1, distance=distance, calibrated=False).fit(
            rows[0][:31], rows[1][:31]
        )
        states = classifier.read(inputs.queries(task, rows[0][67:97]))
        nearest = classifier.search(states, len(classifier.store_))
        bounds = rounding.bounds(nearest, distances.get(distance), read, states, classifier.store_.codec)
        order_QN = np.argsort(np.asarray(nearest.indices_Qk), -1)
        got.append([np.take_along_axis(np.asarray(each), order_QN, -1) for each in (nearest.distances_Qk, *bounds)])
    (exact_QN, *_), (_, low_QN, high_QN) = got
    assert ((low_QN <= exact_QN) & (exact_QN <= high_QN)).all()


def answers(model, task, rows, **options):
    classifier = kp.KNNPrompting(model, task, **PLAIN, demo_shots=1, **options).fit(rows[0][:67], rows[1][:67])
    return classifier.answer(rows[0][67:])


def check_differ_only_where_marked(said, others):
    """Where two labels differ, the second, which is rounded no less, is marked."""
    differ = said.labels != others.labels
    assert not (differ & ~others.decided_by_rounding).any()
    return int(differ.sum())


@pytest.fixture(scope="module")
def plain(model, task, rows):
    return answers(model, task, rows)


def test_marked_predictions_are_few(plain):
    assert plain.decided_by_rounding.mean() < 0.1


def test_dense_and_factored_stores_differ_only_where_marked(plain, model, task, rows):
    dense = answers(model, task, rows, store_options=store_lib.StoreOptions(kind="dense"))
    check_differ_only_where_marked(plain, dense)
    check_differ_only_where_marked(dense, plain)


def test_bfloat16_weights_and_keys_differ_only_where_marked(plain, model, task, rows):
    rounded = answers(kp.demo_model("tiny", dtype="bfloat16"), task, rows)
    check_differ_only_where_marked(plain, rounded)
    assert rounded.decided_by_rounding.mean() < 0.9
    check_differ_only_where_marked(
        plain, answers(model, task, rows, store_options=store_lib.StoreOptions(key_dtype="bfloat16"))
    )


def test_a_mesh_differs_only_where_marked(plain, tmp_path):
    """On a mesh of 2 × 2 forced devices, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    environment["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
    subprocess.run([sys.executable, __file__, str(tmp_path / "labels.npz")], env=environment, check=True, timeout=600)
    with np.load(tmp_path / "labels.npz", allow_pickle=False) as content:
        differ = plain.labels != content["labels"]
        assert not (differ & ~plain.decided_by_rounding).any()
        assert not (differ & ~content["decided_by_rounding"]).any()


def main(path):
    from knnprompt_jax import parallel, tasks

    task = tasks.get("demo")
    train = tasks.load_rows(task, "train")[:97]
    rows = [example.fields["sentence"] for example in train], [int(example.label) for example in train]
    model = lm.LanguageModel.from_pretrained("tiny", mesh=parallel.make_mesh(2, 2))
    assert jax.device_count() == 4
    said = answers(model, task, rows)
    np.savez(path, labels=said.labels, decided_by_rounding=said.decided_by_rounding)


if __name__ == "__main__":
    main(sys.argv[1])
