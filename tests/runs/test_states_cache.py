"""States on disk: found by content, refused when damaged, bounded, shared by processes."""

import concurrent.futures
import multiprocessing
import os

import numpy as np
import pytest

from knnprompt_jax.prompts import layout
from knnprompt_jax.runs import states_cache

WIDTH = 7


def made(count, seed=0):
    rng = np.random.default_rng(seed)
    keys_N = rng.integers(0, 256, (count, 32)).astype(np.uint8)
    return keys_N, rng.normal(size=(count, WIDTH)).astype(np.float32)


def cache_in(folder, most_bytes=2**20):
    return states_cache.StatesCache(folder / "states", most_bytes)


def prompts_of(prefix, *suffixes, index=None):
    places = np.arange(len(suffixes)) if index is None else np.array(index)
    tails = tuple(np.array(suffix, np.int32) for suffix in suffixes)
    return layout.Prompts((layout.PromptGroup(np.array(prefix, np.int32), tails, places),), len(suffixes))


def test_keys_are_those_of_whole_prompts():
    """Wherever the prefix is cut; other tokens, another order, another model have other keys."""
    whole = states_cache.keys_of(prompts_of([], [3, 1, 4, 1], [3, 1, 5]), "a")
    cut = states_cache.keys_of(prompts_of([3, 1], [4, 1], [5]), "a")
    np.testing.assert_array_equal(whole, cut)
    turned = states_cache.keys_of(prompts_of([3, 1], [5], [4, 1], index=[1, 0]), "a")
    np.testing.assert_array_equal(whole, turned)
    others = [
        states_cache.keys_of(prompts_of([3, 1], [4, 1], [6]), "a")[1],
        states_cache.keys_of(prompts_of([3, 1], [5]), "b")[0],
    ]
    assert len({key.tobytes() for key in (*whole, *others)}) == 4


def test_what_is_kept_is_found_by_others_in_any_order(tmp_path):
    (keys_N, rows_NF), (new_N, _) = made(5), made(3, seed=1)
    cache_in(tmp_path).keep(keys_N[:2], rows_NF[:2])
    other = cache_in(tmp_path)
    assert other.find(keys_N, WIDTH)[0].tolist() == [True, True, False, False, False]
    cache_in(tmp_path).keep(keys_N[2:], rows_NF[2:])
    asked = np.concatenate([keys_N[[4, 1]], new_N, keys_N[[1]]])
    there_N, found_nF = other.find(asked, WIDTH)
    assert there_N.tolist() == [True, True, False, False, False, True]
    np.testing.assert_array_equal(found_nF, rows_NF[[4, 1, 1]])


def test_nothing_is_there_at_first(tmp_path):
    there_N, found_nF = cache_in(tmp_path).find(made(3)[0], WIDTH)
    assert not there_N.any() and found_nF.shape == (0, WIDTH) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_a_flipped_bit_anywhere_is_refused(tmp_path, known):
    """Every byte in turn: the rows that come back are those that were kept, or none."""
    keys_N, rows_NF = made(2)
    cache_in(tmp_path).keep(keys_N, rows_NF)
    (path,) = (tmp_path / "states").iterdir()
    content, refused = path.read_bytes(), 0
    for place in range(0, len(content), 5):
        path.write_bytes(content)
        cache = cache_in(tmp_path)
        if known:
            cache.find(keys_N[:0], WIDTH)
        path.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
        there_N, found_nF = cache.find(keys_N, WIDTH)
        np.testing.assert_array_equal(found_nF, rows_NF[there_N])
        refused += not there_N.any()
    assert refused > 10
    cache.keep(keys_N, rows_NF)
    assert states_cache.StatesCache(cache.folder, 2**20).find(keys_N, WIDTH)[0].all()


def test_a_file_that_seems_encrypted_is_removed(tmp_path):
    """One bit of the flags in the zip's directory."""
    keys_N, rows_NF = made(2)
    cache_in(tmp_path).keep(keys_N, rows_NF)
    (path,) = (tmp_path / "states").iterdir()
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] ^= 1
    path.write_bytes(content)
    assert not cache_in(tmp_path).find(keys_N, WIDTH)[0].any() and not path.exists()


def test_a_file_that_is_cut_or_of_another_width_is_removed(tmp_path):
    keys_N, rows_NF = made(3)
    for content in (b"", b"junk", None):
        cache_in(tmp_path).keep(keys_N, rows_NF)
        (path,) = (tmp_path / "states").iterdir()
        path.write_bytes(path.read_bytes()[:-40] if content is None else content)
        assert not cache_in(tmp_path).find(keys_N, WIDTH)[0].any() and not path.exists()
    cache_in(tmp_path).keep(keys_N, rows_NF)
    assert not cache_in(tmp_path).find(keys_N, WIDTH + 1)[0].any()


def test_the_file_used_longest_ago_goes_first(tmp_path):
    parts = [made(3, seed) for seed in range(4)]
    cache = cache_in(tmp_path)
    for number, part in enumerate(parts[:3]):
        cache.keep(*part)
        newest = max((tmp_path / "states").iterdir(), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (number, number))
    size = newest.stat().st_size
    assert cache.find(parts[0][0], WIDTH)[0].all()  # Now it is the one used last.
    cache_in(tmp_path, 3 * size).keep(*parts[3])
    there = [bool(cache_in(tmp_path).find(keys_N, WIDTH)[0].all()) for keys_N, _ in parts]
    assert there == [True, False, True, True]
    assert not cache.find(parts[1][0], WIDTH)[0].any(), "another process has removed it"


def test_a_disk_that_refuses_ends_nothing(tmp_path):
    (tmp_path / "states").write_text("a file")
    cache_in(tmp_path).keep(*made(3))
    assert (tmp_path / "states").read_text() == "a file"


def _keep_and_find(folder, seed):
    """Keeps its own rows and those of all, one part after the other; how many rows of others came out wrong."""
    cache, wrong = states_cache.StatesCache(folder, 2**20), 0
    for number in [seed, *range(6)]:
        keys_N, rows_NF = made(11, number)
        there_N, found_nF = cache.find(keys_N, WIDTH)
        wrong += not np.array_equal(found_nF, rows_NF[there_N])
        cache.keep(keys_N, rows_NF)
    return wrong


def test_processes_share_a_folder_without_a_lock(tmp_path):
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(_keep_and_find, [tmp_path / "states"] * 6, range(6))) == [0] * 6
    cache = cache_in(tmp_path)
    assert all(cache.find(made(11, number)[0], WIDTH)[0].all() for number in range(6))


def test_what_is_not_there_is_numbered_anew():
    prompts = layout.Prompts(
        (
            *prompts_of([1], [2], [3], [4], index=[0, 3, 4]).groups,
            *prompts_of([], [5, 6], [7], index=[2, 1]).groups,
        ),
        5,
    )
    left = states_cache.without(prompts, np.array([True, False, True, False, True]))
    assert left.num_prompts == 2
    assert [(group.index.tolist(), [suffix.tolist() for suffix in group.suffixes]) for group in left.groups] == [
        ([1], [[3]]),
        ([0], [[7]]),
    ]
