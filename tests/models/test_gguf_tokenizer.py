"""Tokenizers from GGUF files give the token ids of the tokenizers that the files were made from."""

import hashlib
import pathlib

import pytest
import tokenizers

from knnprompt_jax import errors
from knnprompt_jax.models import shipped
from knnprompt_jax.models.gguf import bpe as gguf_bpe  # noqa: E402
from knnprompt_jax.models.gguf import tokenizer as gguf_tokenizer  # noqa: E402
from tests.models import gguf_tokenizers
from tests.models.gguf_tokenizers import CONTROL, TEXTS, USER_DEFINED

GPT2 = pathlib.Path(__file__).resolve().parents[3] / "shared" / "tokenizers" / "gpt2" / "tokenizer.json"

# The text by which llama.cpp's converter (get_vocab_base_pre in conversion/base.py) recognises published tokenizers, and the
# SHA-256 of the list of its token ids for GPT-2 and SmolLM.
CHECKED = (
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n🚀 (normal) 😶\u200d🌫️ (multiple emojis concatenated) ✅ 🦙🦙 3 33 333 3333 33333 "
    "333333 3333333 33333333 3.3 3..3 3...3 កាន់តែពិសេសអាច😁 ?我想在apple工作1314151天～ ------======= нещо на Български "
    "''''''```````\"\"\"\"......!!!!!!?????? I've been 'told he's there, 'RE you sure? 'M not sure I'll make it, 'D you like some "
    "tea? We'Ve a'lL"
)
KNOWN = {
    "gpt-2": "3ce83efda5659b07b1ad37ca97ca5797ea4285d9b9ab0dc679e4a720c9da7454",
    "smollm": "855059429035d75a914d1eda9f10a876752e281a054a7a3d421ef0533e5b6249",
}


def digest(numbers):
    return hashlib.sha256(str(numbers).encode()).hexdigest()


def assert_same(loaded, want):
    """Compare token ids without BOS; special tokens in the text count too."""
    for text in [*TEXTS, CHECKED]:
        assert loaded(text, add_special_tokens=False)["input_ids"] == want.encode(text, add_special_tokens=False).ids, (
            text
        )


def message(path):
    with pytest.raises(errors.UserError) as failure:
        gguf_tokenizer.load(path)
    assert "\n" not in str(failure.value) and str(path) in str(failure.value)
    return str(failure.value)


def test_smollm2_is_the_published_tokenizer():
    loaded = gguf_tokenizer.load(shipped.locate("smollm2"))
    assert digest(loaded(CHECKED)["input_ids"]) == KNOWN["smollm"]
    assert loaded.tokenize("a  12") == ["a", "ĠĠ", "1", "2"]
    assert loaded("<|im_start|>user")["input_ids"] == [1, 4093]
    assert (loaded.bos_token, loaded.eos_token, loaded.unk_token) == ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
    for text in TEXTS[:5]:
        assert loaded.decode(loaded(text)["input_ids"]) == text


@pytest.mark.skipif(not GPT2.exists(), reason="no published tokenizer.json beside this checkout")
def test_gpt2_through_a_file_is_the_published_tokenizer(tmp_path):
    published = tokenizers.Tokenizer.from_file(str(GPT2))
    trained = gguf_tokenizers.finish(published, "gpt2", "gpt-2")
    loaded = gguf_tokenizer.load(trained.write(tmp_path / "t.gguf", bos_token_id=50256, eos_token_id=50256))
    assert digest(loaded(CHECKED)["input_ids"]) == KNOWN["gpt-2"]
    assert_same(loaded, published)


@pytest.mark.parametrize("pre", sorted(gguf_tokenizers.PUBLISHED))
def test_byte_level_round_trip(tmp_path, pre):
    trained = gguf_tokenizers.byte_level(pre)
    loaded = gguf_tokenizer.load(trained.write(tmp_path / "t.gguf"))
    assert_same(loaded, trained.tokenizer)
    assert len(loaded) == trained.tokenizer.get_vocab_size()
    assert loaded.decode(loaded("a  12 é🙂", add_special_tokens=False)["input_ids"]) == "a  12 é🙂"


def test_every_split_is_tested():
    twins = {"llama3": "llama-bpe", "llama-v3": "llama-bpe", "mpt": "olmo"}
    assert set(gguf_bpe.SPLITS) == set(gguf_tokenizers.PUBLISHED) | set(twins)
    assert all(gguf_bpe.SPLITS[one] == gguf_bpe.SPLITS[other] for one, other in twins.items())


def test_splits_differ(tmp_path):
    """The texts distinguish the chains, so that a wrong one is noticed."""
    trained, words = gguf_tokenizers.byte_level("gpt-2"), {}
    for pre in gguf_tokenizers.PUBLISHED:
        backend = gguf_tokenizer.load(trained.write(tmp_path / f"{pre}.gguf", pre=pre)).backend_tokenizer
        normalize = backend.normalizer.normalize_str if backend.normalizer else str
        words[pre] = str([backend.pre_tokenizer.pre_tokenize_str(normalize(text)) for text in TEXTS])
    assert words.pop("llama-bpe") == words.pop("smaug-bpe") == words["dbrx"]
    assert len(set(words.values())) == len(words)


@pytest.mark.parametrize(("pre", "whole"), [("llama-bpe", True), ("tekken", True), ("dbrx", False), ("gpt-2", False)])
def test_words_that_are_tokens_stay_whole_where_published(tmp_path, pre, whole):
    trained = gguf_tokenizers.byte_level(pre)
    tokens = [*trained.values["tokens"], "qzxj"]
    kinds = [*trained.values["token_type"], gguf_tokenizers.NORMAL]
    loaded = gguf_tokenizer.load(trained.write(tmp_path / "t.gguf", tokens=tokens, token_type=kinds))
    assert (loaded("qzxj", add_special_tokens=False)["input_ids"] == [len(tokens) - 1]) == whole


@pytest.mark.parametrize("with_merges", [False, True])
@pytest.mark.parametrize("prefix", [False, True])
def test_sentencepiece_round_trip(tmp_path, prefix, with_merges):
    trained = gguf_tokenizers.sentencepiece(prefix)
    merges = gguf_tokenizers.merges_of(trained) if with_merges else None
    path = trained.write(tmp_path / "t.gguf", "llama" if prefix else "gemma3", merges=merges)
    loaded = gguf_tokenizer.load(path)
    assert_same(loaded, trained.tokenizer)
    text = "  the movie\n\n12 é🙂▁"
    back = loaded.decode(loaded(text, add_special_tokens=False)["input_ids"])
    assert back == text.replace("▁", " ")


def test_merges_follow_the_scores(tmp_path):
    """Compare with SentencePiece's rule in plain Python; the scores are not in the order of token ids."""
    trained = gguf_tokenizers.sentencepiece(prefix=True)
    values = trained.values
    order = sorted(range(len(values["tokens"])), key=lambda number: values["tokens"][number][::-1])
    scores = [0.0] * len(order)
    for rank, number in enumerate(order):
        scores[number] = -float(rank)
    loaded = gguf_tokenizer.load(trained.write(tmp_path / "t.gguf", scores=scores))
    usable = {
        token: score
        for token, score, kind in zip(values["tokens"], scores, values["token_type"], strict=True)
        if kind == gguf_tokenizers.NORMAL
    }
    found, changed = 0, 0
    for text in filter(str.isascii, TEXTS):
        if "<" in text or not text:
            continue
        want = gguf_tokenizers.merge_by_score("▁" + text.replace(" ", "▁"), usable)
        tokens = [token if token in usable else f"<0x{ord(token):02X}>" for token in want]
        assert loaded.tokenize(text) == tokens
        found += len(tokens)
        changed += tokens != trained.tokenizer.encode(text, add_special_tokens=False).tokens
    assert found and changed


@pytest.mark.parametrize(
    ("arch", "pre", "says", "bos"),
    [
        ("llama", "gpt-2", None, False),
        ("llama", "gpt-2", True, True),
        ("llama", "llama-bpe", None, True),
        ("llama", "llama-bpe", False, False),
        ("llama", None, None, True),
        ("gemma2", None, False, False),
    ],
)
def test_bos_as_the_file_says_and_no_eos(tmp_path, arch, pre, says, bos):
    trained = gguf_tokenizers.byte_level(pre) if pre else gguf_tokenizers.sentencepiece(prefix=arch == "llama")
    loaded = gguf_tokenizer.load(trained.write(tmp_path / "t.gguf", arch, add_bos_token=says, add_eos_token=True))
    first = [trained.values["bos_token_id"]] if bos else []
    assert loaded.bos_token_id == trained.values["bos_token_id"]
    for text in TEXTS:
        assert loaded(text)["input_ids"] == first + trained.tokenizer.encode(text, add_special_tokens=False).ids
    assert [len(one) for one in loaded(["", "a"])["input_ids"]] == [
        len(first),
        len(first) + 1 + (pre is None) * (arch == "llama"),
    ]


def test_added_tokens_stay_whole_and_padding_is_no_token(tmp_path):
    trained = gguf_tokenizers.byte_level("qwen2")
    size = len(trained.values["tokens"])
    tokens = [*trained.values["tokens"], f"[PAD{size}]"]
    kinds = [*trained.values["token_type"], gguf_tokenizers.UNUSED]
    loaded = gguf_tokenizer.load(trained.write(tmp_path / "t.gguf", tokens=tokens, token_type=kinds))
    assert len(loaded) == size and f"[PAD{size}]" not in loaded.get_vocab()
    assert loaded.tokenize("x<think>y<|im_end|>") == ["x", "<think>", "y", "<|im_end|>"]
    assert loaded.decode(loaded("x<think>y<|im_end|>")["input_ids"], skip_special_tokens=True) == "x<think>y"


def test_phi3_takes_blanks_behind_added_tokens(tmp_path):
    """The published tokenizer sets `rstrip` except for BOS and the end of text."""
    trained = gguf_tokenizers.sentencepiece(prefix=True)
    tokens = [*trained.values["tokens"], "<|user|>", "<|endoftext|>", "<|tool|>"]
    kinds = [*trained.values["token_type"], CONTROL, CONTROL, USER_DEFINED]
    scores = [*trained.values["scores"], 0.0, 0.0, 0.0]
    changes = {"tokens": tokens, "token_type": kinds, "scores": scores}
    loaded = gguf_tokenizer.load(trained.write(tmp_path / "t.gguf", "phi3", **changes))
    other = gguf_tokenizer.load(trained.write(tmp_path / "o.gguf", "llama", **changes))
    for token in ("<|user|>", "<|tool|>", "</s>"):
        assert loaded(f"{token}   the")["input_ids"] == loaded(f"{token}the")["input_ids"]
        assert other(f"{token}   the")["input_ids"] != other(f"{token}the")["input_ids"]
    for token in ("<|endoftext|>", "<s>"):
        assert loaded(f"{token}   the")["input_ids"] == other(f"{token}   the")["input_ids"]


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        ("gpt2", {"model": "rwkv"}, "tokenizer.ggml.model='rwkv' is not supported; choices: gpt2, llama"),
        ("gpt2", {"pre": "falcon"}, "tokenizer.ggml.pre='falcon' is not supported; choices: dbrx, gpt-2, gpt-4o"),
        ("gpt2", {"pre": None}, "tokenizer.ggml.pre is missing"),
        ("gpt2", {"tokens": None}, "tokenizer.ggml.tokens: not in the file"),
        ("gpt2", {"tokens": "abc"}, "tokenizer.ggml.tokens: no list of texts"),
        ("gpt2", {"tokens": ["a", "b", "a"]}, "tokenizer.ggml.tokens: 1 duplicate tokens, such as 'a'"),
        ("gpt2", {"token_type": [1, 2]}, "tokenizer.ggml.token_type: "),
        ("gpt2", {"merges": None}, "tokenizer.ggml.merges: not in the file"),
        ("gpt2", {"merges": ["ab"]}, "tokenizer.ggml.merges: 'ab' does not have two parts"),
        ("gpt2", {"merges": ["q qqqq"]}, "no usable tokenizer: "),
        ("gpt2", {"add_space_prefix": True}, "tokenizer.ggml.add_space_prefix: true is not supported"),
        ("gpt2", {"add_bos_token": 1}, "tokenizer.ggml.add_bos_token=1 is neither true nor false"),
        ("gpt2", {"add_bos_token": True, "bos_token_id": None}, "tokenizer.ggml.bos_token_id: not in the file"),
        ("gpt2", {"eos_token_id": 100_000}, "tokenizer.ggml.eos_token_id: 100000 is no token of "),
        ("llama", {"scores": "equal"}, "tokenizer.ggml.scores: missing or all equal, and the file has no merges"),
        ("llama", {"tokens": ["t", "u", "v"], "token_type": [1] * 3, "scores": [0.0] * 3}, "256 of 256"),
    ],
)
def test_unsupported_tokenizers_are_refused(tmp_path, kind, changes, expected):
    trained = gguf_tokenizers.byte_level("gpt-2") if kind == "gpt2" else gguf_tokenizers.sentencepiece(prefix=True)
    if changes.get("scores") == "equal":
        changes = {"scores": [-1000.0] * len(trained.values["scores"])}
    assert expected in message(trained.write(tmp_path / "t.gguf", **changes))
