"""Prefixes in the user's cache folder give the states of a fresh pass, bit by bit, and only to the same model."""

import shutil

import jax
import numpy as np
import pytest
import safetensors.numpy

from knnprompt_jax import lm, shipped, states
from knnprompt_jax.lm import prefixes
from tests import prompt_groups

PROMPTS = prompt_groups.make_random(7, 0, 61, (23, 5))


def read(prompts=PROMPTS, dtype="float32", model=None):
    """Return the states of a model without anything in memory, and the tokens of prefixes that it read."""
    model = model or lm.LanguageModel.from_pretrained("tiny", dtype, keeps_prefixes=True)
    found = states.read(model, prompts, repeated=True)
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(found)], model.statistics.prefix_tokens


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path))
    return tmp_path / "converted"


def test_kept_prefixes_give_the_same_bits_and_damaged_ones_are_read_again(folder):
    expected, prefix_tokens = read()
    assert prefix_tokens == 61
    (kept,) = folder.glob("*.prefix.safetensors")
    assert read() == (expected, 0)
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-5] + bytes([whole[-5] ^ 4]) + whole[-4:])
    assert read() == (expected, 61) and kept.read_bytes() == whole


def test_other_prefixes_have_other_files_and_large_ones_none(folder, monkeypatch):
    read()
    other = prompt_groups.make_random(7, 0, 61, (23, 5), seed=2)
    assert read(other)[1] == 61 and len(list(folder.glob("*.prefix.safetensors"))) == 2
    monkeypatch.setattr(prefixes, "_MAX_BYTES", 1000)
    third = prompt_groups.make_random(7, 0, 59, (23, 5))
    assert read(third)[1] == read(third)[1] == 59
    assert read(other, "bfloat16")[1] == 61, "only float32 prefixes are kept"


def test_another_processor_reads_prefixes_itself(folder, monkeypatch):
    assert read()[1] == 61 and read()[1] == 0
    monkeypatch.setattr(prefixes, "_processor", lambda: "another")
    assert read()[1] == 61


@pytest.mark.parametrize("is_loaded", [True, False])
def test_files_that_are_replaced_while_a_model_is_in_use_get_no_prefix_of_it(folder, tmp_path, is_loaded):
    """The model's fingerprint is that of the earlier files in any case."""
    copied = shutil.copytree(shipped.locate("tiny"), tmp_path / "copied")
    earlier, later = (lm.LanguageModel.from_pretrained(str(copied), keeps_prefixes=True) for _ in range(2))
    assert earlier.head if is_loaded else earlier.fingerprint
    earlier_files = shutil.copytree(copied, tmp_path / "earlier")
    weights = copied / "model.safetensors"
    scaled = {name: 1.3 * array for name, array in safetensors.numpy.load_file(weights).items()}
    safetensors.numpy.save_file(scaled, tmp_path / "scaled", {"format": "pt"})
    (tmp_path / "scaled").replace(weights)
    assert read(model=earlier)[1] == 61
    assert read(model=later)[1] == (61 if is_loaded else 0), "a model that loads now has the new weights"
    (earlier_files / "model.safetensors").replace(weights)
    again = lm.LanguageModel.from_pretrained(str(copied), keeps_prefixes=True)
    assert read(model=again)[1] == (0 if is_loaded else 61)
