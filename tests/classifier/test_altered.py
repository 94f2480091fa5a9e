"""A saved classifier of which any bit was flipped, or any file is another's code: refused in one line, and nothing is run."""

import json
import os
import pickle
import shutil

import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import saving
from knnprompt_jax.files import MANIFEST
from tests.classifier import test_saving


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("altered") / "saved"
    fitted.save(folder)
    return folder


def alterations(path, whole):
    """Yield the file with a flipped bit at its beginning, middle and end, and in the manifest in the value of each key."""
    places = {0, len(whole) // 2, len(whole) - 1}
    if path.name == MANIFEST:
        places |= {whole.index(json.dumps(key).encode()) + len(key) + 5 for key in json.loads(whole)}
    for place in sorted(place for place in places if 0 <= place < len(whole)):
        yield whole[:place] + bytes([whole[place] ^ (1 << place % 7)]) + whole[place + 1 :]


def test_a_flipped_bit_anywhere_is_refused(saved):
    for path in sorted(path for path in saved.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        for altered in alterations(path, whole):
            path.write_bytes(altered)
            with pytest.raises(kp.UserError, match=f"^[^\n]*{saved}[^\n]*$"):
                saving.read(saved)
        path.write_bytes(whole)
    saving.read(saved)


def test_a_pickle_with_a_matching_checksum_is_never_run(saved, fitted, tmp_path):
    class Payload:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "it ran"),))

    refused = set()
    for path in [path for path in saved.rglob("*") if path.is_file()]:
        copy = tmp_path / str(len(list(tmp_path.iterdir())))
        shutil.copytree(saved, copy)
        (copy / path.relative_to(saved)).write_bytes(pickle.dumps(Payload()))
        if path.name != MANIFEST:
            test_saving.with_fitting_sums(copy)
        try:
            kp.load(copy, fitted.model)
        except kp.UserError:
            refused.add(path.name)
    assert not (tmp_path / "it ran").exists()
    assert {"manifest.json", "rows.jsonl", "hidden_NE.npy"} <= refused
