"""What a GGUF file becomes is kept in the user's cache folder, whole, by content, and bounded."""

import jax
import numpy as np
import pytest
from flax import nnx

from knnprompt_jax.models import registry, tokenizers
from knnprompt_jax.models.gguf import config as gguf_config
from knnprompt_jax.models.gguf import header as gguf_header
from knnprompt_jax.models.gguf import tensors as gguf_tensors
from knnprompt_jax.models.weights import checkpoints, kept_files
from tests.models.gguf import gguf_tokenizers, gguf_writer

TEXTS = ["a film", "", "</s> and <s>", "émigré 12"]


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("KNNPROMPT_CACHE", "off")
    gguf_writer.write(tmp_path / "a.gguf", "llama", gguf_writer.make("llama"), "Q5_1")
    return tmp_path / "a.gguf"


def load(file):
    """Return a hash of all weights."""
    config = registry.config_from_hf(gguf_config.config_json(file))
    model = checkpoints.load(file, config, np.dtype(np.float32))
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(nnx.state(model))]


def test_weights_are_kept_by_content_and_replaced_where_damaged(file, tmp_path, monkeypatch):
    expected = load(file)
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path / "cache"))
    assert load(file) == expected
    (kept,) = (tmp_path / "cache" / "converted").glob("*.safetensors")
    file = file.rename(tmp_path / "b.gguf")
    with monkeypatch.context() as patched:
        patched.setattr(gguf_tensors, "numbers", None)
        patched.setattr(gguf_header, "read", None)
        assert load(file) == expected, "nothing is converted again"
    whole = kept.read_bytes()
    assert int.from_bytes(whole[:8], "little") % 64 == 56, "the arrays are aligned after the header and its length"
    flipped = [whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :] for at in (0, len(whole) - 401, len(whole) - 1)]
    for damaged in (whole[:-4], whole + b"0", b"", bytes(4), *flipped):
        kept.write_bytes(damaged)
        assert load(file) == expected and kept.read_bytes() == whole


def test_other_code_and_a_file_beyond_the_bound_are_not_read_from_the_cache(file, tmp_path, monkeypatch):
    expected = load(file)
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "converted"
    load(file)
    before = set(folder.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(kept_files, "_code", lambda: "edited")
        assert load(file) == expected and len(set(folder.iterdir())) == 2 * len(before)
    monkeypatch.setattr(kept_files, "MAX_BYTES", 1000)
    for path in folder.iterdir():
        path.unlink()
    assert load(file) == expected and not list(folder.glob("*.safetensors"))


@pytest.mark.parametrize("damaged", [None, b"", b"{}\n{}", b"[\n"])
@pytest.mark.parametrize("kind", ["byte-level", "sentencepiece"])
def test_a_kept_tokenizer_is_the_same(tmp_path, monkeypatch, kind, damaged):
    made = gguf_tokenizers.byte_level() if kind == "byte-level" else gguf_tokenizers.sentencepiece(prefix=True)
    file = made.write(tmp_path / "t.gguf")
    monkeypatch.setenv("KNNPROMPT_CACHE", "off")
    first = tokenizers.load(file)
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path / "cache"))
    tokenizers.load(file)
    (kept,) = (tmp_path / "cache" / "converted").glob("*.tokenizer.json")
    if damaged is not None:
        kept.write_bytes(damaged)
    second = tokenizers.load(file)
    assert second(TEXTS) == first(TEXTS) and second(TEXTS[0]) == first(TEXTS[0])
    assert second(TEXTS, add_special_tokens=False) == first(TEXTS, add_special_tokens=False)
    assert (len(second), second.get_vocab(), second.bos_token_id) == (len(first), first.get_vocab(), first.bos_token_id)
    ids = first(TEXTS)["input_ids"]
    assert second.batch_decode(ids) == first.batch_decode(ids) == [first.decode(tokens) for tokens in ids]
