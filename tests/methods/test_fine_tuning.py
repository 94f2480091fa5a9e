"""Fine-tuning as a method: it learns what can be learnt from the split, seeded, from the run's model or another."""

import numpy as np
import pytest
import tokenizers
import transformers
from flax import nnx

from knnprompt_jax import lm
from knnprompt_jax.methods import fine_tuning, method, trainer
from knnprompt_jax.models import decoder, registry
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task
from tools import pretrain_tiny

WORDS = {"0": ["cold", "grey", "rain", "wind", "storm"], "1": ["warm", "gold", "sun", "calm", "clear"]}
OPTIONS = {"steps": 30, "batch": 8, "learning_rate": 1e-2}


def rows(count: int, seed: int) -> list[Example]:
    rng = np.random.default_rng(seed)
    labels = [str(number % 2) for number in range(count)]
    return [
        Example({"sentence": " ".join(rng.choice(WORDS[label], 5))}, label, row) for row, label in enumerate(labels)
    ]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> lm.LanguageModel:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = pretrain_tiny.train_tokenizer([example.fields["sentence"] for example in rows(40, 1)] * 3, 290)
    sizes = {"vocab_size": tokenizer.get_vocab_size(), "n_embd": 24, "n_layer": 2, "n_head": 3, "n_inner": 44}
    config = registry.config_from_hf({"model_type": "gpt2", **sizes, "n_positions": 64})
    pretrain_tiny.export(folder, decoder.Decoder(config, nnx.Rngs(3)), tokenizer, "float32")
    return lm.LanguageModel.from_pretrained(str(folder))


@pytest.fixture(scope="module")
def problem(model) -> method.Problem:
    task = Task("weather", ("sentence",), "{sentence}:", ("0", "1"), ("bad", "good"))
    split = splits.draw(rows(40, 1), task, shots=8, demo_shots=2, seed=1)
    return method.Problem(task, split, rows(13, 2), model.tokenize)


def test_learns(problem, model, predict, tmp_path):
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


@pytest.mark.parametrize(
    ("task", "shots", "steps", "batch"),
    [("mr", 8, 125, 16), ("dbpedia", 256, 250, 4)],
)
def test_published_numbers(task, shots, steps, batch):
    config = trainer.Settings().with_published(task, shots)
    assert (config.steps, config.batch, config.learning_rate, config.max_length) == (steps, batch, 1e-5, 256)
    assert (config.weight_decay, config.clip, config.dropout) == (0.01, 1.0, 0.1)
    chosen = trainer.Settings(steps=3, batch=5)
    assert chosen.with_published(task, shots) == chosen


ONE = Task("one", ("sentence",), "{sentence}:", ("0", "1"), ("no", "yes"))
TWO = Task("two", ("a", "b"), "{a} {b}:", ("0", "1"), ("no", "yes"), "first: {a}. second: {b}")
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[EOS]", "x", "y", "first", "second", ":", "."]
PAD, UNK, CLS, SEP, EOS, X, Y, FIRST, SECOND, COLON, DOT = range(11)


def word_tokenizer() -> tokenizers.Tokenizer:
    words = {word: index for index, word in enumerate(VOCABULARY)}
    built = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    built.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return built


@pytest.fixture(scope="module")
def tokenizer() -> transformers.PreTrainedTokenizerFast:
    """BERT's way: [CLS] a [SEP] b [SEP]."""
    built = word_tokenizer()
    built.post_processor = tokenizers.processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=built, pad_token="[PAD]")


@pytest.fixture(scope="module")
def plain() -> transformers.PreTrainedTokenizerFast:
    """GPT-2's way: the words alone."""
    return transformers.PreTrainedTokenizerFast(tokenizer_object=word_tokenizer(), eos_token="[EOS]")


def test_pair_for_bert(tokenizer):
    encoded = fine_tuning.encode(TWO, [Example({"a": "x x", "b": "y"}, "0")], tokenizer, 256, as_pairs=True)
    assert encoded.tokens == ([CLS, X, X, SEP, Y, SEP],)
    assert encoded.types == ([0, 0, 0, 0, 1, 1],)
    # The longer text of a pair is truncated first.
    encoded = fine_tuning.encode(TWO, [Example({"a": "x " * 50, "b": "y y"}, "0")], tokenizer, 9, as_pairs=True)
    assert encoded.tokens == ([CLS, X, X, X, X, SEP, Y, Y, SEP],)


def test_pair_for_gpt2_is_one_text(plain):
    encoded = fine_tuning.encode(TWO, [Example({"a": "x", "b": "y"}, "0")], plain, 256, as_pairs=False)
    assert encoded.tokens == ([FIRST, COLON, X, DOT, SECOND, COLON, Y],)
    assert encoded.types == ([0] * 7,)


def test_empty_text_has_a_token_to_read(plain, tokenizer):
    examples = [Example({"sentence": text}, "0") for text in ("", "x y x")]
    assert fine_tuning.encode(ONE, examples, plain, 2, as_pairs=False).tokens == ([EOS], [X, Y])
    assert fine_tuning.encode(ONE, examples, tokenizer, 256, as_pairs=True).tokens == ([CLS, SEP], [CLS, X, Y, X, SEP])


def test_batch_is_padded_on_the_right(plain):
    encoded = fine_tuning.encode(
        ONE, [Example({"sentence": text}, "0") for text in ("x", "y x x", "x " * 33)], plain, 41, False
    )
    assert encoded.width == 41 and encoded.lengths_N.tolist() == [1, 3, 33]
    tokens_BT, types_BT, lengths_B = encoded.batch([1, 0], 3, 5)
    np.testing.assert_array_equal(tokens_BT, [[Y, X, X, 0, 0], [X, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(lengths_B, [3, 1, 1])
    assert not types_BT.any()
