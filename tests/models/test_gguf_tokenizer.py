"""Tokenizers from GGUF files give the token ids of the tokenizers that the files were made from."""

import hashlib
import pathlib
import re

import pytest
import transformers

from knnprompt_jax.common import errors
from knnprompt_jax.models import hub, split_rules
from tests.models import gguf_tokenizers
from tests.models.gguf_tokenizers import NORMAL, TEXTS, UNUSED

GPT2 = pathlib.Path(__file__).resolve().parents[3] / "shared" / "tokenizers" / "gpt2" / "tokenizer.json"

# The text by which llama.cpp's converter (get_vocab_base_pre in conversion/base.py) recognises published tokenizers,
# and the SHA-256 of the list of its token ids for GPT-2 and SmolLM.
CHECKED = (
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n🚀 (normal) 😶\u200d🌫️ (multiple emojis concatenated) ✅ 🦙🦙 3 33 333 3333 33333 "
    "333333 3333333 33333333 3.3 3..3 3...3 កាន់តែពិសេសអាច😁 ?我想在apple工作1314151天～ ------======= нещо на Български "
    "''''''```````\"\"\"\"......!!!!!!?????? I've been 'told he's there, 'RE you sure? 'M not sure I'll make it, 'D you like some "
    "tea? We'Ve a'lL"
)
KNOWN_GPT2 = "3ce83efda5659b07b1ad37ca97ca5797ea4285d9b9ab0dc679e4a720c9da7454"
KNOWN_SMOLLM = "855059429035d75a914d1eda9f10a876752e281a054a7a3d421ef0533e5b6249"
# The first 16 digits of the SHA-256 of the words that published tokenizer.json files make of all texts.
WORDS = {
    "gpt-2": "92b309e99cdcc195",
    "smollm": "41efb8cd42df9b2c",
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "smaug-bpe", "dbrx"), "cedf8855478207d3"),
    "qwen2": "f11e2c0691e22843",
    "tekken": "1e19f681520a0f53",
}
WHOLE = ("llama-bpe", "llama3", "llama-v3", "smaug-bpe", "tekken")  # Words that are tokens are not split.


def digest(value):
    return hashlib.sha256(str(value).encode()).hexdigest()


def load(folder):
    """Return a converted tokenizer; special tokens in a text count as such."""
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


def ids(loaded, text):
    return loaded(text, add_special_tokens=False)["input_ids"]


def assert_same(loaded, want):
    """Compare token ids without BOS; special tokens in the text count too."""
    for text in [*TEXTS, CHECKED]:
        assert ids(loaded, text) == want.encode(text, add_special_tokens=False).ids, text


def test_smollm2_is_the_published_tokenizer():
    loaded = load(hub.resolve("smollm2"))
    assert digest(loaded(CHECKED)["input_ids"]) == KNOWN_SMOLLM
    assert loaded.tokenize("a  12") == ["a", "ĠĠ", "1", "2"]
    assert loaded("<|im_start|>user")["input_ids"] == [1, 4093]
    assert (loaded.bos_token, loaded.eos_token, loaded.unk_token) == ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
    assert [loaded.decode(loaded(text)["input_ids"]) for text in TEXTS[:5]] == TEXTS[:5]
    chat = loaded.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True)
    assert chat.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("file", [None, GPT2])
def test_byte_level_round_trip(tmp_path, file):
    if file and not file.exists():
        pytest.skip("no published tokenizer.json beside this checkout")
    trained = gguf_tokenizers.byte_level(file)
    loaded = load(trained.convert(tmp_path))
    assert_same(loaded, trained.tokenizer)
    assert not file or digest(loaded(CHECKED)["input_ids"]) == KNOWN_GPT2
    assert len(loaded) == trained.tokenizer.get_vocab_size()
    assert loaded.decode(ids(loaded, "a  12 é🙂")) == "a  12 é🙂"


def test_every_split_is_the_published_one(tmp_path):
    trained, words, keeps_words = gguf_tokenizers.byte_level(), {}, []
    tokens, kinds = [*trained.values["tokens"], "qzxj"], [*trained.values["token_type"], NORMAL]
    for pre in split_rules.SPLITS:
        loaded = load(trained.convert(tmp_path, pre=pre, tokens=tokens, token_type=kinds))
        backend = loaded.backend_tokenizer
        normalize = backend.normalizer.normalize_str if backend.normalizer else str
        split = [backend.pre_tokenizer.pre_tokenize_str(normalize(text)) for text in [*TEXTS, CHECKED]]
        words[pre] = digest([[word for word, _ in text] for text in split])[:16]
        keeps_words += [pre] * (ids(loaded, "qzxj") == [len(tokens) - 1])
    assert words == WORDS and sorted(keeps_words) == sorted(WHOLE)


@pytest.mark.parametrize("with_merges", [False, True])
@pytest.mark.parametrize("prefix", [False, True])
def test_sentencepiece_round_trip(tmp_path, prefix, with_merges):
    trained = gguf_tokenizers.sentencepiece(prefix)
    merges = gguf_tokenizers.merges_of(trained.tokenizer) if with_merges else None
    loaded = load(trained.convert(tmp_path, "llama" if prefix else "gemma3", merges=merges))
    assert_same(loaded, trained.tokenizer)
    text = "  the movie\n\n12 é🙂▁"
    assert loaded.decode(ids(loaded, text)) == text.replace("▁", " ")


def merge_by_score(text, score):
    """Apply SentencePiece's rule: merge the neighbours with the best score, the leftmost of several."""
    parts = list(text)
    while places := [place for place in range(len(parts) - 1) if parts[place] + parts[place + 1] in score]:
        best = max(places, key=lambda place: score[parts[place] + parts[place + 1]])
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return parts


def test_merges_follow_the_scores(tmp_path):
    """Compare with SentencePiece's rule in plain Python; the scores are not in the order of token ids."""
    trained = gguf_tokenizers.sentencepiece(prefix=True)
    tokens, kinds = trained.values["tokens"], trained.values["token_type"]
    backwards = sorted(tokens, key=lambda token: token[::-1])
    score = {token: -float(rank) for rank, token in enumerate(backwards)}
    loaded = load(trained.convert(tmp_path, scores=[score[token] for token in tokens]))
    usable = {token: score[token] for token, kind in zip(tokens, kinds, strict=True) if kind == NORMAL}
    changed = 0
    for text in (text for text in TEXTS if text.isascii() and text and "<" not in text):
        parts = merge_by_score("▁" + text.replace(" ", "▁"), usable)
        assert loaded.tokenize(text) == [part if part in usable else f"<0x{ord(part):02X}>" for part in parts]
        changed += loaded.tokenize(text) != trained.tokenizer.encode(text, add_special_tokens=False).tokens
    assert changed


@pytest.mark.parametrize(
    ("arch", "pre", "setting", "has_bos"),
    [
        ("llama", "gpt-2", None, False),
        ("llama", "llama-bpe", None, True),
        ("llama", "llama-bpe", False, False),
        ("llama", "default", None, True),
        ("gemma3", "default", False, False),
    ],
)
def test_bos_as_the_file_says_and_no_eos(tmp_path, arch, pre, setting, has_bos):
    is_byte_level = pre != "default"
    trained = gguf_tokenizers.byte_level() if is_byte_level else gguf_tokenizers.sentencepiece(prefix=arch == "llama")
    folder = trained.convert(tmp_path, arch, pre=pre, add_bos_token=setting, add_eos_token=True)
    loaded, first = load(folder), [trained.values["bos_token_id"]] if has_bos else []
    assert [loaded(text)["input_ids"] for text in TEXTS] == [first + ids(loaded, text) for text in TEXTS]


def test_added_tokens_stay_whole_and_padding_is_no_token(tmp_path):
    trained = gguf_tokenizers.byte_level()
    size = len(trained.values["tokens"])
    tokens, kinds = [*trained.values["tokens"], f"[PAD{size}]"], [*trained.values["token_type"], UNUSED]
    loaded = load(trained.convert(tmp_path, tokens=tokens, token_type=kinds))
    assert len(loaded) == size and f"[PAD{size}]" not in loaded.get_vocab()
    assert loaded.tokenize("x<think>y<|im_end|>") == ["x", "<think>", "y", "<|im_end|>"]
    assert loaded.decode(ids(loaded, "x<think>y<|im_end|>"), skip_special_tokens=True) == "x<think>y"


BYTE_LEVEL = {"model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b", "ab"], "merges": ["a b"]}
SENTENCEPIECE = {"model": "llama", "tokens": ["t", "u", "v"], "scores": [0.0] * 3}


@pytest.mark.parametrize(
    ("values", "changes", "expected"),
    [
        (BYTE_LEVEL, {"pre": "falcon"}, "pre='falcon': it is not supported; choices: dbrx, gpt-2, llama-bpe"),
        (BYTE_LEVEL, {"tokens": ["a", "b", "a"]}, "2 different tokens of 3"),
        (SENTENCEPIECE, {"tokens": [f"<0x{byte:02X}>" for byte in range(256)]}, "missing or all equal"),
    ],
)
def test_unsupported_tokenizers_are_refused(tmp_path, values, changes, expected):
    with pytest.raises(errors.UserError, match=f"^{tmp_path / 't.gguf'}.*{re.escape(expected)}"):
        gguf_tokenizers.Trained(None, values).convert(tmp_path, **changes)
