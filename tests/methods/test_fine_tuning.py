"""Fine-tuning as a method: it learns what can be learnt from the split, seeded, from the run's model or another."""

import numpy as np
import pytest
import tokenizers
import transformers

from knnprompt_jax import lm
from knnprompt_jax.methods import fine_tuning, method, trainer
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task

WORDS = {"0": ["cold", "grey", "rain", "wind", "storm"], "1": ["warm", "gold", "sun", "calm", "clear"]}
OPTIONS = {"steps": 30, "batch": 8, "learning_rate": 1e-3}
ONE = Task("weather", ("sentence",), "{sentence}:", ("0", "1"), ("bad", "good"))
TWO = Task("two", ("a", "b"), "{a} {b}:", ("0", "1"), ("no", "yes"), "first: {a}. second: {b}")
CLS, SEP, X, Y = range(4)


def rows(count: int, seed: int) -> list[Example]:
    rng = np.random.default_rng(seed)
    labels = [str(number % 2) for number in range(count)]
    return [
        Example({"sentence": " ".join(rng.choice(WORDS[label], 5))}, label, row) for row, label in enumerate(labels)
    ]


@pytest.fixture(scope="module")
def model() -> lm.LanguageModel:
    return lm.LanguageModel.from_pretrained("tiny")


def test_learns(model, predict, tmp_path):
    split = splits.draw(rows(40, 1), ONE, shots=8, demo_shots=2, seed=1)
    problem = method.Problem(ONE, split, rows(13, 2), model.tokenize)
    prediction = predict("fine_tuning", problem, model, checkpoints=str(tmp_path), **OPTIONS)
    assert prediction.classes_Q.tolist() == [int(row.label) for row in problem.evaluation]
    np.testing.assert_allclose(prediction.probabilities_QC.sum(1), 1, atol=1e-6)
    assert prediction.note.startswith("30 steps of 8 rows, last loss 0.")
    tokens = [len(model.tokenizer(row.fields["sentence"])["input_ids"]) for row in problem.evaluation]
    most = 3 * 30 * 8 * max(tokens)
    assert prediction.prompts == 13 and sum(tokens) + most / 2 < prediction.tokens <= sum(tokens) + most
    again = predict("fine_tuning", problem, model, checkpoints=str(tmp_path), **OPTIONS)
    np.testing.assert_array_equal(again.probabilities_QC, prediction.probabilities_QC)
    assert again.note == "30 steps of 8 rows"  # All of them were done before.


@pytest.mark.parametrize(("task", "shots", "steps", "batch"), [("mr", 8, 125, 16), ("dbpedia", 256, 250, 4)])
def test_published_numbers(task, shots, steps, batch):
    config = trainer.Settings().with_published(task, shots)
    assert (config.steps, config.batch, config.learning_rate, config.max_length) == (steps, batch, 1e-5, 256)
    assert (config.weight_decay, config.clip, config.dropout) == (0.01, 1.0, 0.1)
    chosen = trainer.Settings(steps=3, batch=5)
    assert chosen.with_published(task, shots) == chosen


@pytest.fixture(scope="module")
def of_bert() -> transformers.PreTrainedTokenizerFast:
    """A tokenizer that writes [CLS] a [SEP] b [SEP]."""
    words = {word: number for number, word in enumerate(("[CLS]", "[SEP]", "x", "y", "[UNK]"))}
    built = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    built.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    built.post_processor = tokenizers.processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=built, pad_token="[UNK]")


@pytest.mark.parametrize(
    ("task", "fields", "max_length", "tokens", "types"),
    [
        (TWO, {"a": "x x", "b": "y"}, 256, [CLS, X, X, SEP, Y, SEP], [0, 0, 0, 0, 1, 1]),
        # The longer text of a pair is truncated first.
        (TWO, {"a": "x " * 50, "b": "y y"}, 9, [CLS, X, X, X, X, SEP, Y, Y, SEP], [0] * 6 + [1] * 3),
        (ONE, {"sentence": ""}, 256, [CLS, SEP], [0, 0]),
    ],
)
def test_texts_for_bert(of_bert, task, fields, max_length, tokens, types):
    encoded = fine_tuning.encode(task, [Example(fields, "0")], of_bert, max_length, as_pairs=True)
    assert (encoded.tokens, encoded.types) == ((tokens,), (types,))


def test_texts_for_gpt2(model):
    """A pair is one text, and an empty text has a token to read."""
    pair = fine_tuning.encode(TWO, [Example({"a": "x", "b": "y"}, "0")], model.tokenizer, 256, as_pairs=False)
    assert pair.tokens == (model.tokenizer("first: x. second: y")["input_ids"],) and not any(pair.types[0])
    examples = [Example({"sentence": text}, "0") for text in ("", "cold rain and wind")]
    encoded = fine_tuning.encode(ONE, examples, model.tokenizer, 2, as_pairs=False)
    assert encoded.tokens == ([model.tokenizer.eos_token_id], model.tokenizer("cold rain and wind")["input_ids"][:2])


def test_batch_is_padded_on_the_right():
    texts = trainer.Texts(([X], [Y, X, X], [X] * 33), ([0], [0] * 3, [0] * 33), max_length=41)
    assert texts.width == 41 and texts.lengths_N.tolist() == [1, 3, 33]
    tokens_BT, types_BT, lengths_B = texts.batch([1, 0], 3, 5)
    np.testing.assert_array_equal(tokens_BT, [[Y, X, X, 0, 0], [X, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(lengths_B, [3, 1, 1])
    assert not types_BT.any()
