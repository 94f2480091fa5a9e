"""Texts whose words are tokenized one by one have the tokens of whole texts; other tokenizers get whole texts."""

import hypothesis
import pytest
import tokenizers as tokenizers_lib
import transformers
from hypothesis import strategies
from tokenizers import models, normalizers, pre_tokenizers

from knnprompt_jax.inference.prompts import layout, word_tokenizer
from knnprompt_jax.models import split_rules, tokenizers
from knnprompt_jax.tasks.task import Example, Task
from tests import prompt_groups
from tests.models import gguf_tokenizers

RULES = [*split_rules.SPLITS, "llama", "gemma3"]
PIECES = [*gguf_tokenizers.TEXTS, *gguf_tokenizers.ADDED, " ", "  ", "\n", "\u00a0", "\u0301", "\u200b", "e", "'s", "7"]


@pytest.fixture(scope="module", params=RULES)
def tokenizer(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    if request.param in split_rules.SPLITS:
        path = gguf_tokenizers.byte_level().convert(folder, pre=request.param)
    else:
        path = gguf_tokenizers.sentencepiece(request.param == "llama").convert(folder, request.param)
    loaded = tokenizers.load(path)
    assert tokenizers.splits_at_words(loaded.backend_tokenizer) == (request.param in split_rules.SPLITS)
    return loaded


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(strategies.lists(strategies.lists(strategies.sampled_from(PIECES), max_size=5).map("".join)))
def test_tokens_are_those_of_whole_texts(tokenizer, texts):
    tokenize = word_tokenizer.WordTokenizer(tokenizer)
    expected = tokenizer(texts)["input_ids"] if texts else []
    assert tokenize(texts) == [row.tolist() for row in tokenize.rows(texts)] == expected


def test_each_word_is_tokenized_once_while_it_is_kept(tokenizer, monkeypatch):
    tokenized = []

    class Counting:
        backend_tokenizer = tokenizer.backend_tokenizer

        def __call__(self, texts, **options):
            tokenized.extend(texts)
            return tokenizer(texts, **options)

    tokenize = word_tokenizer.WordTokenizer(Counting())
    for keeps, count in ((2**16, 1), (1, 10)):
        monkeypatch.setattr(word_tokenizer, "_MAX_TOKENS", keeps)
        for number in range(10):
            texts = [f"a b\n{number + 10 * count} c", " c"]
            assert [row.tolist() for row in tokenize.rows(texts)] == tokenizer(texts)["input_ids"]
        is_cut = tokenizers.splits_at_words(tokenizer.backend_tokenizer)
        assert "".join(tokenized).count(" c") == (count if is_cut else 20)
        tokenized.clear()


def test_a_vocabulary_without_some_bytes():
    tokenizer = with_parts()
    vocabulary = {byte: number for number, byte in enumerate(pre_tokenizers.ByteLevel.alphabet()) if byte != "z"}
    tokenizer.model = models.BPE(vocabulary, [])
    tokenize = word_tokenizer.WordTokenizer(transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer))
    texts = ["a zb cz d zz z", "z ", " z\n"]
    assert [row.tolist() for row in tokenize.rows(texts)] == tokenize(texts)


def with_parts(pre_tokenizer=None, normalizer=None, added=()):
    """Return a byte-level tokenizer with some parts replaced."""
    tokenizer = gguf_tokenizers.byte_level().tokenizer
    tokenizer.pre_tokenizer = pre_tokenizer or tokenizer.pre_tokenizer
    tokenizer.normalizer = normalizer
    tokenizer.add_tokens(list(added))
    return tokenizer


BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
JOINING = pre_tokenizers.Split(tokenizers_lib.Regex(r"\w+ |\W"), "isolated")


@pytest.mark.parametrize(
    "unknown",
    [
        with_parts(BYTES),
        with_parts(pre_tokenizers.ByteLevel(add_prefix_space=True)),
        with_parts(pre_tokenizers.Sequence([JOINING, BYTES])),
        with_parts(normalizer=normalizers.Replace("a b", "c")),
        with_parts(added=["e b"]),
        with_parts(added=[tokenizers_lib.AddedToken("one", rstrip=True)]),
        with_parts(added=[tokenizers_lib.AddedToken(" f", single_word=True)]),
    ],
    ids=["no rule", "prefix", "pattern", "normalizer", "blank in a token", "rstrip", "single word"],
)
def test_tokenizers_with_other_rules_get_whole_texts(unknown):
    assert not tokenizers.splits_at_words(unknown)


def test_a_tokenizer_that_is_wrongly_trusted_gets_whole_prompts(monkeypatch):
    """The check of some prompts finds it."""
    monkeypatch.setattr(tokenizers, "splits_at_words", lambda _: True)
    joining = transformers.PreTrainedTokenizerFast(tokenizer_object=with_parts(added=["e b"]))
    tokenize = word_tokenizer.WordTokenizer(joining)
    [expected] = tokenize(["of e b"])
    assert tokenize.rows(["of e b"])[0].tolist() != expected
    task = Task("own", ("text",), "{text}", ("0", "1"), ("0", "1"))
    prompts = layout.build_prompts(task, [], [Example({"text": "of e b"}, "0")], tokenize, 99)
    assert prompt_groups.tokens_of(prompts) == [expected]
