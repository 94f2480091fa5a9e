"""Fine-tuning as a method: it learns what can be learnt from the split, seeded, from the run's model or another."""

import numpy as np
import pytest
from flax import nnx

from knnprompt_jax import lm
from knnprompt_jax.methods import method
from knnprompt_jax.methods.fine_tuning import settings
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


def test_published_numbers_by_default():
    config = settings.Settings().with_published("mr", 8)
    assert (config.steps, config.batch, config.learning_rate, config.max_length) == (125, 16, 1e-5, 256)
    assert (config.weight_decay, config.clip, config.dropout) == (0.01, 1.0, 0.1)
    chosen = settings.Settings(steps=3, batch=5)
    assert chosen.with_published("mr", 8) == chosen
