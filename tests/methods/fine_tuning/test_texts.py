"""Examples as token sequences: pairs, truncation, empty texts, padding."""

import numpy as np
import pytest
import tokenizers
import transformers

from knnprompt_jax.methods.fine_tuning import texts
from knnprompt_jax.tasks.task import Example, Task

ONE = Task("one", ("sentence",), "{sentence}:", ("0", "1"), ("no", "yes"))
TWO = Task("two", ("a", "b"), "{a} {b}:", ("0", "1"), ("no", "yes"), "first: {a}. second: {b}")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[EOS]", "x", "y", "first", "second", ":", "."]
PAD, UNK, CLS, SEP, EOS, X, Y, FIRST, SECOND, COLON, DOT = range(11)


@pytest.fixture(scope="module")
def tokenizer() -> transformers.PreTrainedTokenizerFast:
    """BERT's way: [CLS] a [SEP] b [SEP]."""
    built = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    built.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    built.post_processor = tokenizers.processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=built, pad_token="[PAD]")


@pytest.fixture(scope="module")
def plain() -> transformers.PreTrainedTokenizerFast:
    """GPT-2's way: the words alone."""
    built = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    built.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=built, eos_token="[EOS]")


def test_pair_for_bert(tokenizer):
    encoded = texts.encode(TWO, [Example({"a": "x x", "b": "y"}, "0")], tokenizer, 256, as_pairs=True)
    assert encoded.tokens == ([CLS, X, X, SEP, Y, SEP],)
    assert encoded.types == ([0, 0, 0, 0, 1, 1],)


def test_longer_of_a_pair_is_cut_first(tokenizer):
    encoded = texts.encode(TWO, [Example({"a": "x " * 50, "b": "y y"}, "0")], tokenizer, 9, as_pairs=True)
    assert encoded.tokens == ([CLS, X, X, X, X, SEP, Y, Y, SEP],)


def test_pair_for_gpt2_is_one_text(plain):
    encoded = texts.encode(TWO, [Example({"a": "x", "b": "y"}, "0")], plain, 256, as_pairs=False)
    assert encoded.tokens == ([FIRST, COLON, X, DOT, SECOND, COLON, Y],)
    assert encoded.types == ([0] * 7,)


def test_empty_text_has_a_token_to_read(plain, tokenizer):
    examples = [Example({"sentence": text}, "0") for text in ("", "x y x")]
    assert texts.encode(ONE, examples, plain, 2, as_pairs=False).tokens == ([EOS], [X, Y])
    assert texts.encode(ONE, examples, tokenizer, 256, as_pairs=True).tokens == ([CLS, SEP], [CLS, X, Y, X, SEP])


def test_batch_is_padded_on_the_right(plain):
    encoded = texts.encode(
        ONE, [Example({"sentence": text}, "0") for text in ("x", "y x x", "x " * 33)], plain, 41, False
    )
    assert encoded.width == 41 and encoded.lengths_N.tolist() == [1, 3, 33]
    tokens_BT, types_BT, lengths_B = encoded.batch([1, 0], 3, 5)
    np.testing.assert_array_equal(tokens_BT, [[Y, X, X, 0, 0], [X, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(lengths_B, [3, 1, 1])
    assert not types_BT.any()
