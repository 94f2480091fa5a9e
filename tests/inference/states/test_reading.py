"""Reading prompts: each once, none that the cache holds, the same bits after a kill."""

import itertools
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from knnprompt_jax.inference import lm, states
from knnprompt_jax.inference.prompts import layout, packing
from knnprompt_jax.inference.states import reading
from tests import processes, prompt_groups
from tests.inference.states import killed

TOKENS = [[5, 6, 7], [5, 8], [9] * 40, [5, 6, 1, 2, 3], [4]]


def bits(read):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(read)]


def check_close(got, expected, atol=1e-4):
    jax.tree.map(lambda ours, theirs: np.testing.assert_allclose(ours, theirs, atol=atol), got, expected)


@pytest.fixture(scope="module")
def model():
    return killed.make_model()


@pytest.fixture(scope="module")
def steady():
    return killed.make_model(deterministic=True)


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    """The states of an uninterrupted reading in chunks."""
    return killed.read(tmp_path_factory.mktemp("whole"), model)


@pytest.mark.parametrize("prefix", [(), (3, 1, 4)], ids=["whole", "shared prefix"])
@pytest.mark.parametrize(
    "make_cache", [lambda folder: states.DiskCache(folder, 2**20), lambda _: states.MemoryCache(2**20)]
)
def test_only_new_prompts_are_read_and_rows_keep_their_order(model, tmp_path, prefix, make_cache):
    expected, cache = states.read(model, prompt_groups.make(TOKENS, prefix)), make_cache(tmp_path)
    for tokens, num_new in ((TOKENS[:2], 2), (TOKENS[::-1], 3), (TOKENS, 0), ([*TOKENS[2:], TOKENS[0]], 0)):
        before = model.statistics.prompts
        got = states.read(model, prompt_groups.make(tokens, prefix), cache)
        check_close(got, expected.take_replicated(np.array([TOKENS.index(each) for each in tokens])))
        assert model.statistics.prompts - before == num_new


@pytest.mark.parametrize("cached", [False, True])
def test_equal_prompts_are_read_once(model, tmp_path, cached):
    places = np.array([3, 0, 3, 3, 1, 0])
    before = model.statistics.prompts
    got = states.read(
        model,
        prompt_groups.make([TOKENS[place] for place in places], (7,)),
        states.DiskCache(tmp_path, 2**20) if cached else None,
    )
    assert model.statistics.prompts - before == 3
    check_close(got, states.read(model, prompt_groups.make(TOKENS, (7,))).take_replicated(places))


def test_another_model_finds_nothing(model, steady, tmp_path, monkeypatch):
    cache = states.DiskCache(tmp_path, 2**20)
    for other, name, value in (
        (model, "fingerprint", "f"),
        (model, "fingerprint", "g"),
        (model, "dtype", "bfloat16"),
        (steady, "fingerprint", "g"),
    ):
        monkeypatch.setattr(other, name, value)
        before = other.statistics.prompts
        states.read(other, prompt_groups.make(TOKENS), cache)
        assert other.statistics.prompts - before == len(TOKENS), (name, value)
        states.read(other, prompt_groups.make(TOKENS[:1]), cache, activations=(lm.Activation(1),))
        assert other.statistics.prompts - before == len(TOKENS) + 1, "a layer that was not asked for"
        states.read(other, prompt_groups.make([[6, 7], [8]], (5,)), cache)
        assert other.statistics.prompts - before == len(TOKENS) + 1, "the cut of the prefix must not matter"


def test_only_float32_states_are_those_of_any_platform(model, tmp_path, monkeypatch):
    cache = states.DiskCache(tmp_path, 2**20)
    for dtype, platform, new in (
        ("float32", "cpu", 3),
        ("float32", "gpu", 0),
        ("bfloat16", "cpu", 3),
        ("bfloat16", "gpu", 3),
    ):
        monkeypatch.setattr(model, "dtype", dtype)
        monkeypatch.setattr(type(model), "platform", platform)
        before = model.statistics.prompts
        states.read(model, prompt_groups.make(TOKENS[:3]), cache)
        assert model.statistics.prompts - before == new, (dtype, platform)


def test_a_model_without_files_is_not_cached(model, tmp_path, monkeypatch):
    monkeypatch.setattr(model, "fingerprint", "")
    states.read(model, prompt_groups.make(TOKENS), states.DiskCache(tmp_path / "states", 2**20))
    assert not (tmp_path / "states").exists()


@pytest.mark.parametrize("cached", [False, True])
def test_layers_come_with_the_states(model, tmp_path, cached):
    """Later readings find each layer and the states, whatever was asked for with them; no row is kept twice."""
    cache, prompts = states.DiskCache(tmp_path, 2**20) if cached else None, prompt_groups.make_random(13, 2)
    plain = states.read(model, prompts, cache)
    first, third, mean = lm.Activation(1), lm.Activation(3), lm.Activation(1, is_mean=True)
    for kept, num_read in (((third,), 13), ((first, third), 13), ((mean,), 13), ((third, mean, first), 0), ((), 0)):
        before = model.statistics.prompts
        got = states.read(model, prompts, cache, activations=kept)
        assert model.statistics.prompts - before == (num_read if cached else 13)
        check_close((got.hidden_NE, got.log_z_N), (plain.hidden_NE, plain.log_z_N))
        assert set(got.activations) == set(kept)
        if third in kept:
            last = model.execution.decoder.final_norm(got.activations[third])
            np.testing.assert_allclose(last, plain.hidden_NE, atol=1e-4)
    assert len(list(tmp_path.iterdir())) == (4 if cached else 0)


@pytest.mark.parametrize("prefix", [(), (3, 1, 4)], ids=["no demonstrations", "demonstrations"])
@pytest.mark.parametrize("kind", ["model", "steady"])
def test_means_are_those_of_the_last_tokens_of_shorter_prompts(request, kind, prefix):
    """A mean counts the tokens after the demonstrations, whichever prompts share a beginning or a row."""
    model, last, mean = request.getfixturevalue(kind), lm.Activation(2), lm.Activation(2, is_mean=True)
    tokens = [*TOKENS, [5, 6, 1], [5, 6, 1, 9]]
    got = states.read(model, prompt_groups.make(tokens, prefix), activations=(last, mean)).activations
    for index, own in enumerate(tokens):
        shorter = prompt_groups.make([own[: count + 1] for count in range(len(own))], prefix)
        outputs_TD = states.read(model, shorter, activations=(last,)).activations[last]
        np.testing.assert_allclose(got[mean][index], outputs_TD.mean(0), atol=1e-4)
        np.testing.assert_allclose(got[last][index], outputs_TD[-1], atol=1e-4)


def test_the_key_of_a_mean_has_the_number_of_own_tokens(model, tmp_path):
    cache, output = states.DiskCache(tmp_path, 2**20), lm.Activation(2, is_mean=True)
    whole = states.read(model, prompt_groups.make([[5, 6, 7]]), cache, activations=(output,))
    after = states.read(model, prompt_groups.make([[6, 7]], (5,)), cache, activations=(output,))
    check_close(whole.hidden_NE, after.hidden_NE)
    assert np.abs(whole.activations[output] - after.activations[output]).max() > 1e-3


def test_killed_it_ends_with_the_same_bits(model, whole, tmp_path):
    folder = tmp_path / "states"
    process = processes.start("tests/inference/states/killed.py", folder)
    while len(list(folder.glob("*.npz"))) < 3:
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = model.statistics.prompts
    assert bits(killed.read(folder, model)) == bits(whole)
    assert model.statistics.prompts - before < killed.PROMPTS.num_prompts


def test_a_part_that_is_packed_more_densely_has_room(model, tmp_path):
    """The prompts that are missing may fill rows with more prompts than any row of the whole has."""
    rng, cache = np.random.default_rng(3), states.DiskCache(tmp_path, 2**20)
    long = [rng.integers(0, 200, 90).tolist() for _ in range(8)]
    short = [[200 + number // 8, number % 8] for number in range(64)]
    mixed = [each for number in range(8) for each in (long[number], *short[8 * number : 8 * number + 8])]
    shape = packing.choose_shape(prompt_groups.make(mixed).groups, 256)
    [dense] = prompt_groups.make(short).groups
    assert packing.max_outputs(dense, packing.fill_rows(dense, shape.width), shape.rows) > shape.outputs
    states.read(model, prompt_groups.make(long), cache)
    check_close(states.read(model, prompt_groups.make(mixed), cache), states.read(model, prompt_groups.make(mixed)))


def test_repeated_calls_share_programs_and_the_prefix(whole):
    model = killed.make_model()
    for start in range(0, 96, 12):
        part = prompt_groups.take(killed.PROMPTS, start, start + 12)
        check_close(states.read(model, part, repeated=True), whole.take_replicated(slice(start, start + 12)))
    assert model.statistics.prefix_tokens == 53
    # Prefixes and suffixes, with a shared prefix and without, in one row or two.
    assert model.statistics.compilations <= 6


def test_sets_share_one_packing(whole):
    ours = killed.make_model()
    sets = [prompt_groups.take(killed.PROMPTS, start, stop) for start, stop in ((0, 71), (71, 101))]
    first, second = states.read_sets(ours, sets)
    check_close(jax.tree.map(lambda *parts: jnp.concatenate(parts), first.states, second.states), whole)
    assert ours.statistics.compilations == 3, "one for the prefix, one for suffixes after it, one for others"
    assert 0 < ours.statistics.compile_seconds < first.seconds + second.seconds


def test_seconds_of_a_set_exclude_the_use_of_the_set_before(monkeypatch):
    """On accelerators, the next set is queued while the consumer has this one."""
    model, now = killed.make_model(), itertools.count()
    pause = [0]
    monkeypatch.setattr(type(model), "platform", property(lambda self: "gpu"))
    monkeypatch.setattr(reading.time, "monotonic", lambda: next(now) + pause[0])
    seconds = []
    for found in states.read_sets(
        model, [prompt_groups.take(killed.PROMPTS, start, start + 31) for start in (0, 31, 62)]
    ):
        seconds.append(found.seconds)
        pause[0] += 10**6
    assert len(seconds) == 3 and 0 < max(seconds) < 10**5


def test_a_deterministic_model_gives_the_same_bits_in_any_chunks(steady, tmp_path):
    expected = states.read(steady, killed.PROMPTS)
    assert bits(killed.read(tmp_path, steady)) == bits(expected)
    assert bits(states.read(steady, killed.PROMPTS, repeated=True)) == bits(expected)


def test_no_prompts(model):
    assert [len(leaf) for leaf in jax.tree.leaves(states.read(model, layout.Prompts.from_groups([], 0)))] == [0, 0]
