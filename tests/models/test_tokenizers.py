"""Tokenizers of model folders: they load and make tokens, and texts contain no special tokens."""

import copy
import json
import shutil

import pytest
import tokenizers as tokenizers_lib
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from knnprompt_jax.common import errors
from knnprompt_jax.inference import lm
from knnprompt_jax.inference.prompts import word_tokenizer
from knnprompt_jax.models import hub, tokenizers
from tests.models import gguf_tokenizers


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(hub.locate("tiny"), tmp_path / "model")


def test_special_tokens_outside_the_vocabulary_are_allowed(folder):
    """Gemma 3's tokenizer has one for images, which its text models lack."""
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    image = {**content["added_tokens"][0], "id": 5120, "content": "<image_soft_token>"}
    content["added_tokens"].append(image)
    file.write_text(json.dumps(content))
    assert tokenizers.load(folder, vocab_size=5120).encode("<image_soft_token>", split_special_tokens=False) == [5120]
    image["special"] = False
    file.write_text(json.dumps(content))
    with pytest.raises(errors.UserError, match="its tokenizer has token id 5120, but the model has 5120 tokens"):
        lm.LanguageModel.from_pretrained(folder)


@pytest.mark.parametrize(
    ("kind", "model_type"), [("GPT2Tokenizer", "llama"), ("Qwen2Tokenizer", "qwen2"), ("LlamaTokenizer", "llama")]
)
def test_tokenizer_json_counts_and_no_class(tmp_path, kind, model_type):
    """A class of `transformers` may replace the normalizer, the pre-tokenizer and the special tokens of the file."""
    whole = gguf_tokenizers.byte_level().tokenizer
    digits, bytes_ = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    whole.normalizer, whole.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Sequence([digits, bytes_])
    end = whole.token_to_id("<|endoftext|>")
    whole.post_processor = processors.TemplateProcessing("<|endoftext|> $A", special_tokens=[("<|endoftext|>", end)])
    whole.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    config = {"model_type": model_type, "bos_token_id": end, "eos_token_id": end}
    (tmp_path / "config.json").write_text(json.dumps(config))
    loaded, text = tokenizers.load(tmp_path), "\n\n2001 : A  film of 12"
    assert loaded(text)["input_ids"] == whole.encode(text).ids
    assert loaded(text)["input_ids"][0] == loaded.bos_token_id == loaded.eos_token_id == end


TEXT = "the movie</s> was<s>, so <|im_start|> <s>"


def pieces(kind):
    """Return a tokenizer of characters whose own vocabulary or merges yield `<s>` and `</s>`."""
    control = ["<unk>", "<s>", "</s>", "<|im_start|>"]
    vocabulary = [*control, *sorted({*TEXT.replace(" ", "▁")})]
    if kind == "unigram":
        scores = [(token, 0.0 if token in control else -3.0) for token in vocabulary]
        tokenizer = tokenizers_lib.Tokenizer(models.Unigram(scores, 0, False))
    else:
        ids = {token: id_ for id_, token in enumerate([*vocabulary, "<s"])}
        tokenizer = tokenizers_lib.Tokenizer(models.BPE(ids, [("<", "s"), ("<s", ">")], unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer.add_special_tokens(control)
    return tokenizer


@pytest.mark.parametrize("kind", ["byte-level", "unigram", "merges"])
def test_special_tokens_in_texts_are_text(tmp_path, kind):
    plain = gguf_tokenizers.byte_level().tokenizer if kind == "byte-level" else pieces(kind)
    bos = "<|endoftext|>" if kind == "byte-level" else "<s>"
    whole = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, bos_token=bos, add_bos_token=True)
    whole.save_pretrained(tmp_path)
    loaded = tokenizers.load(tmp_path)
    control = {id_ for id_, token in loaded.added_tokens_decoder.items() if token.special}
    text = TEXT + bos
    first, *rest = loaded(text)["input_ids"]
    assert first == loaded.bos_token_id and not control & {*rest}
    assert loaded.decode(rest).strip() == text
    assert control & {*loaded.encode(text, add_special_tokens=False, split_special_tokens=False)}
    words = "the movie was so"
    assert loaded(words)["input_ids"] == [first, *plain.encode(words, add_special_tokens=False).ids]


def test_token_ids_without_transformers_are_those_with_it(tmp_path):
    """A file of special tokens makes the same folder one that `transformers` reads."""
    bos = gguf_tokenizers.byte_level().convert(tmp_path, pre="llama-bpe")
    for folder in (bos, shutil.copytree(hub.locate("tiny"), tmp_path / "tiny")):
        plain = tokenizers.load(folder)
        assert plain._loaded is None
        (folder / "special_tokens_map.json").write_text("{}")
        whole = tokenizers.load(folder)
        assert whole._loaded is not None
        texts = [*gguf_tokenizers.TEXTS, "x" * 3000]
        for options in ({}, {"add_special_tokens": False}):
            assert plain(texts, **options)["input_ids"] == whole(texts, **options)["input_ids"]
        assert (copy.deepcopy(plain)("a b")["input_ids"], len(plain)) == (whole("a b")["input_ids"], len(whole))


@pytest.mark.parametrize("content", ["", "{}", None])
def test_a_damaged_or_missing_tokenizer_is_refused(folder, content):
    """Without its files, `transformers` would make a tokenizer that knows no text."""
    (folder / "tokenizer.json").unlink()
    if content is not None:
        (folder / "tokenizer.json").write_text(content)
    with pytest.raises(errors.UserError, match=f"^{folder}: no usable tokenizer"):
        tokenizers.load(folder)


def test_a_vocabulary_with_merges_is_a_tokenizer(folder):
    expected = tokenizers.load(folder)("a text of 12")["input_ids"]
    file = folder / "tokenizer.json"
    model = json.loads(file.read_text())["model"]
    file.unlink()
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("\n".join(" ".join(pair) for pair in model["merges"]))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    assert tokenizers.load(folder)("a text of 12")["input_ids"] == expected


def test_a_tokenizer_that_fails_on_a_text_later_is_reported(folder):
    """The probes at load time do not have every character."""
    tokenizer = tokenizers.load(folder)
    vocabulary = {"a": 0, "b": 1}
    tokenizer.backend_tokenizer.model = models.WordLevel(vocabulary, unk_token="?")
    with pytest.raises(errors.UserError, match="the model's tokenizer fails on a text: WordLevel error"):
        word_tokenizer.WordTokenizer(tokenizer)(["zq"])


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("$A x", "must not end in a special token"),
        ("b $A </s>", "must not end in a special token"),
        ("b b $A", "not begin with the same one twice"),
        ("b $A", ""),
    ],
)
def test_tokens_around_every_text(tmp_path, pattern, message):
    words = {"a": 0, "b": 1, "x": 2, "</s>": 3, "?": 4}
    tokenizer = tokenizers_lib.Tokenizer(models.WordLevel(words, unk_token="?"))
    special = [(word, number) for word, number in words.items() if word in pattern.split()]
    tokenizer.post_processor = processors.TemplateProcessing(pattern, special_tokens=special)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="?")
    fast.save_pretrained(tmp_path)
    if not message:
        assert tokenizers.load(tmp_path)("a")["input_ids"] == [1, 0]
        return
    with pytest.raises(errors.UserError, match=message):
        tokenizers.load(tmp_path)
    assert tokenizers.load(tmp_path, for_prompts=False)("a")["input_ids"]
