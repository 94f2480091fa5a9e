"""Tokens of examples for a BERT and for a decoder."""

import pytest
import tokenizers
import transformers

from knnprompt_jax.common import errors
from knnprompt_jax.inference import lm
from knnprompt_jax.study import sequence_classifier as texts
from knnprompt_jax.tasks.task import Example, Task

ONE = Task("weather", ("sentence",), "{sentence}:", ("0", "1"), ("bad", "good"))
TWO = Task("two", ("a", "b"), "{a} {b}:", ("0", "1"), ("no", "yes"), "first: {a}. second: {b}")
CLS, SEP, COLD, WARM = range(4)
LONG = {"a": "cold " * 50, "b": "warm warm"}  # The longer text of a pair is truncated first.
EMPTY = {"sentence": ""}


@pytest.fixture(scope="module")
def of_bert() -> transformers.PreTrainedTokenizerFast:
    """A tokenizer that writes [CLS] a [SEP] b [SEP]."""
    words = {word: number for number, word in enumerate(("[CLS]", "[SEP]", "cold", "warm", "[UNK]"))}
    built = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    built.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    built.post_processor = tokenizers.processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=built, pad_token="[UNK]")


@pytest.mark.parametrize(
    ("task", "fields", "max_length", "tokens", "types"),
    [
        (TWO, LONG, 9, [CLS, *[COLD] * 4, SEP, WARM, WARM, SEP], [0] * 6 + [1] * 3),
        (ONE, EMPTY, 256, [CLS, SEP], [0, 0]),
    ],
)
def test_texts_for_bert(of_bert, task, fields, max_length, tokens, types):
    encoded = texts.encode(task, [Example(fields, "0")], of_bert, max_length, as_pairs=True)
    assert (encoded.tokens, encoded.types) == ((tokens,), (types,))


@pytest.mark.parametrize(("task", "max_length"), [(ONE, 2), (TWO, 3)])
def test_texts_without_room_are_refused(of_bert, task, max_length):
    examples = [Example(dict.fromkeys(task.fields, "cold"), "0")]
    with pytest.raises(errors.UserError, match=f"max_length={max_length}: texts of so few tokens hold only the"):
        texts.encode(task, examples, of_bert, max_length, as_pairs=True)
    assert texts.encode(task, examples, of_bert, max_length + 1, as_pairs=True).lengths_N == max_length + 1


def test_texts_for_gpt2():
    """A pair is one text, and an empty text has a token to classify by."""
    model = lm.LanguageModel.from_pretrained("tiny")
    pair = texts.encode(TWO, [Example({"a": "x", "b": "y"}, "0")], model.tokenizer, 256, as_pairs=False)
    assert pair.tokens == (model.tokenizer("first: x. second: y")["input_ids"],) and not any(pair.types[0])
    examples = [Example({"sentence": text}, "0") for text in ("", "cold rain and wind")]
    encoded = texts.encode(ONE, examples, model.tokenizer, 2, as_pairs=False)
    assert encoded.tokens == ([model.tokenizer.eos_token_id], model.tokenizer("cold rain and wind")["input_ids"][:2])
