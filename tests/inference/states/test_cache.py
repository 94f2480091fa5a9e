"""Caches of states: found by content, refused when damaged, bounded, shared by processes."""

import concurrent.futures
import os

import numpy as np
import pytest

from knnprompt_jax.common import files
from knnprompt_jax.inference import states
from knnprompt_jax.inference.states import cache as cache_lib

WIDTH = 7


def made(count, seed=0):
    rng = np.random.default_rng(seed)
    keys_N = np.frombuffer(rng.integers(0, 256, (count, 32)).astype(np.uint8).tobytes(), cache_lib.KEY_DTYPE)
    return keys_N, rng.normal(size=(count, WIDTH)).astype(np.float32)


def cache_in(folder, max_bytes=2**20):
    return states.DiskCache(folder / "states", max_bytes)


def test_rows_are_found_by_others_in_any_order(tmp_path):
    (keys_N, rows_NF), (new_N, _) = made(5), made(3, seed=1)
    cache_in(tmp_path).keep(keys_N[:2], rows_NF[:2])
    other = cache_in(tmp_path)
    assert other.find(keys_N, WIDTH)[0].tolist() == [True, True, False, False, False]
    cache_in(tmp_path).keep(keys_N[2:], rows_NF[2:])
    asked = np.concatenate([keys_N[[4, 1]], new_N, keys_N[[1]]])
    is_cached_N, found_NF = other.find(asked, WIDTH)
    assert is_cached_N.tolist() == [True, True, False, False, False, True]
    np.testing.assert_array_equal(found_NF[is_cached_N], rows_NF[[4, 1, 1]])


def test_a_cache_in_memory_serves_threads():
    keys_N, rows_NF = made(64)
    cache = states.MemoryCache(24 * rows_NF[0].nbytes)

    def use(seed):
        for chosen in np.random.default_rng(seed).integers(0, 64, (300, 5)):
            cache.keep(keys_N[chosen], rows_NF[chosen])
            is_cached_n, found_NF = cache.find(keys_N[chosen], WIDTH)
            np.testing.assert_array_equal(found_NF[is_cached_n], rows_NF[chosen][is_cached_n])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(4)))
    assert cache._num_bytes == sum(row.nbytes for row in cache._rows.values()) <= cache.max_bytes


def test_files_that_may_not_be_removed_are_no_error(tmp_path, monkeypatch, caplog):
    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    keys_N, rows_NF = made(5)
    cache_in(tmp_path).keep(keys_N, rows_NF)
    monkeypatch.setattr(cache_lib.files, "remove_oldest", refuse)
    cache_in(tmp_path).keep(keys_N[:2], rows_NF[:2])
    assert "Operation not permitted" in caplog.text


@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_a_flipped_bit_anywhere_is_refused(tmp_path, known):
    """The rows that come back are those that were kept, or none."""
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
        is_cached_N, found_NF = cache.find(keys_N, WIDTH)
        np.testing.assert_array_equal(found_NF[is_cached_N], rows_NF[is_cached_N])
        refused += not is_cached_N.any()
    assert refused > 10
    cache.keep(keys_N, rows_NF)
    assert cache_in(tmp_path).find(keys_N, WIDTH)[0].all()


@pytest.mark.parametrize("damage", [lambda _: b"", lambda _: b"junk", lambda content: content[:-40]])
def test_a_damaged_file_is_removed(tmp_path, damage):
    keys_N, rows_NF = made(3)
    cache_in(tmp_path).keep(keys_N, rows_NF)
    (path,) = (tmp_path / "states").iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert not cache_in(tmp_path).find(keys_N, WIDTH)[0].any() and not path.exists()


def test_the_file_used_longest_ago_is_removed_first(tmp_path):
    parts = [made(3, seed) for seed in range(4)]
    for number, part in enumerate(parts[:3]):
        cache_in(tmp_path).keep(*part)
        newest = max((tmp_path / "states").iterdir(), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (number, number))
    size = newest.stat().st_size
    cache = cache_in(tmp_path, 3 * size)
    assert cache.find(parts[0][0], WIDTH)[0].all()  # It is now the one used last.
    cache.keep(*parts[3])
    present = [bool(cache_in(tmp_path).find(keys_N, WIDTH)[0].all()) for keys_N, _ in parts]
    assert present == [True, False, True, True]
    assert not cache.find(parts[1][0], WIDTH)[0].any(), "another process has removed it"


def test_a_job_larger_than_the_bound_keeps_its_own_files(tmp_path):
    """Otherwise a killed job would have to start anew."""
    cache, parts = cache_in(tmp_path, 1), [made(3, seed) for seed in range(3)]
    for part in parts:
        cache.keep(*part)
    assert all(cache.find(keys_N, WIDTH)[0].all() for keys_N, _ in parts)


def test_memory_is_bounded_and_the_row_used_longest_ago_goes_first():
    keys_N, rows_NF = made(5)
    cache = states.MemoryCache(3 * rows_NF[0].nbytes)
    cache.keep(keys_N[:3], rows_NF[:3])
    assert not cache.find(keys_N, WIDTH + 1)[0].any()
    cache.find(keys_N[:1], WIDTH)
    cache.keep(keys_N[3:4], rows_NF[3:4])
    assert cache.find(keys_N, WIDTH)[0].tolist() == [True, False, True, True, False]
    cache.keep(keys_N[[0, 0]], rows_NF[[0, 0]])
    assert cache.find(keys_N, WIDTH)[0].tolist() == [True, False, True, True, False]


def test_the_users_cache_can_be_turned_off_and_a_disk_that_refuses_ends_nothing(tmp_path, monkeypatch):
    (tmp_path / "states").write_text("a file")
    cache_in(tmp_path).keep(*made(3))
    assert (tmp_path / "states").read_text() == "a file"
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path))
    assert states.open_disk_cache(1.5).folder == tmp_path / "states" and states.open_disk_cache(0) is None
    monkeypatch.setenv("KNNPROMPT_CACHE", "off")
    assert states.open_disk_cache(1.5) is None
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KNNPROMPT_CACHE", "~/mine")
    assert states.open_disk_cache(1.5).folder == tmp_path / "mine" / "states"


def test_another_process_that_writes_the_same_rows_is_no_reason_for_a_warning(tmp_path, caplog):
    cache, rows = cache_in(tmp_path), made(3)
    cache.keep(*rows)
    (path,) = cache.folder.glob("*.npz")
    path.unlink()
    with files.lock(files.draft(path)):
        cache.keep(*rows)
    assert "not cached" not in caplog.text and not path.exists()


def test_a_capped_cache_keeps_half_of_its_bound(tmp_path):
    """A job of any length would otherwise fill the disk: no process removes what it has used itself."""
    keys_N, rows_NF = made(40)
    cache = states.DiskCache(tmp_path / "states", 40 * rows_NF[0].nbytes, is_capped=True)
    for start in range(0, 40, 5):
        cache.keep(keys_N[start : start + 5], rows_NF[start : start + 5])
    assert states.DiskCache(tmp_path / "states", 2**20).find(keys_N, WIDTH)[0].tolist() == [True] * 20 + [False] * 20


@pytest.mark.parametrize("has_folder", [True, False])
def test_the_cache_of_python_is_in_memory_and_on_disk_where_calls_are_large(tmp_path, monkeypatch, has_folder):
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path) if has_folder else "off")
    keys_N, rows_NF = made(53)
    first = states.MemoryCache(2**20, 2**20)
    first.keep(keys_N[:40], rows_NF[:40])
    first.keep(keys_N[40:], rows_NF[40:])
    asked = np.random.default_rng(5).permutation(53)
    is_cached_N, found_NF = first.find(keys_N[asked], WIDTH)
    assert is_cached_N.all() and first.is_durable == has_folder
    np.testing.assert_array_equal(found_NF, rows_NF[asked])
    is_cached_N, found_NF = states.MemoryCache(2**20, 2**20).find(keys_N[asked], WIDTH)
    np.testing.assert_array_equal(is_cached_N, (asked < 40) & has_folder)
    np.testing.assert_array_equal(found_NF[is_cached_N], rows_NF[asked][is_cached_N])
