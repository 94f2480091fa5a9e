"""A saved classifier of which any bit was flipped, or any file is another's code: refused in one line, and nothing is run."""

import json
import os
import pickle

import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import saving
from knnprompt_jax.store import manifest
from tests.classifier import test_saving

REGIONS = 7  # Of every file, beside its first and last byte.


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("altered") / "saved"
    fitted.save(folder)
    return folder


def paths(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def places(path):
    """Bytes of every structural region of a file: an even choice, and in the manifest the value of each key."""
    content = path.read_bytes()
    chosen = {0, len(content) - 1, *(len(content) * region // REGIONS for region in range(1, REGIONS))}
    if path.name == manifest.FILE:
        chosen |= {content.index(json.dumps(key).encode()) + len(key) + 5 for key in json.loads(content)}
    return sorted(place for place in chosen if 0 <= place < len(content))


@pytest.mark.parametrize("bit", [0, 6])
def test_a_flipped_bit_anywhere_is_refused(saved, bit):
    saving.read(saved)
    flips = [(path, place) for path in paths(saved) for place in places(path)]
    assert len(flips) > 100
    for path, place in flips:
        whole = path.read_bytes()
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
        try:
            with pytest.raises(kp.UserError) as caught:
                saving.read(saved)
        finally:
            path.write_bytes(whole)
        assert "\n" not in str(caught.value) and str(saved) in str(caught.value), (path, place)
    saving.read(saved)


@pytest.mark.parametrize("sums_fit", [False, True])
def test_a_pickle_in_any_place_is_refused_and_not_run(saved, fitted, tmp_path, sums_fit):
    class Payload:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "it ran"),))

    told, refused = (saved / manifest.FILE).read_bytes(), []
    for path in paths(saved):
        whole = path.read_bytes()
        path.write_bytes(pickle.dumps(Payload()))
        if sums_fit and path.name != manifest.FILE:
            test_saving.with_fitting_sums(saved)
        try:
            kp.KNNPrompting.load(saved, fitted.model)
        except kp.UserError as error:
            assert "\n" not in str(error), path
            refused.append(path.name)
        finally:
            path.write_bytes(whole)
            (saved / manifest.FILE).write_bytes(told)
        assert not (tmp_path / "it ran").exists(), path
    # With sums that fit, files are let pass that no reader of arrays opens.
    assert len(refused) == len(paths(saved)) or (
        sums_fit and {"manifest.json", "rows.jsonl", "_METADATA"} <= {*refused}
    )
    kp.KNNPrompting.load(saved, fitted.model)
