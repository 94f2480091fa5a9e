"""Fine-tuning as a method: it learns what can be learnt from the split, seeded, from the run's model or another."""

import numpy as np
import pytest
from flax import nnx

from knnprompt_jax import errors, lm
from knnprompt_jax.methods import method
from knnprompt_jax.methods.fine_tuning import method as fine_tuning
from knnprompt_jax.models import decoder, registry
from knnprompt_jax.pretraining import bpe, export
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task

WORDS = {"0": ["cold", "grey", "rain", "wind", "storm"], "1": ["warm", "gold", "sun", "calm", "clear"]}
OPTIONS = {"steps": 30, "batch": 8, "learning_rate": 1e-2, "dropout": 0.1}


def rows(count: int, seed: int) -> list[Example]:
    rng = np.random.default_rng(seed)
    labels = [str(number % 2) for number in range(count)]
    return [
        Example({"sentence": " ".join(rng.choice(WORDS[label], 5))}, label, row) for row, label in enumerate(labels)
    ]


@pytest.fixture(scope="module")
def context(tmp_path_factory) -> method.Context:
    folder, examples = tmp_path_factory.mktemp("model"), rows(40, 1)
    tokenizer = bpe.train([example.fields["sentence"] for example in examples] * 3, 290)
    sizes = {"vocab_size": tokenizer.get_vocab_size(), "n_embd": 24, "n_layer": 2, "n_head": 3, "n_inner": 44}
    config = registry.config_from_hf({"model_type": "gpt2", **sizes, "n_positions": 64})
    export.export(folder, decoder.Decoder(config, nnx.Rngs(3)), tokenizer, "float32")
    task = Task("weather", ("sentence",), "{sentence}:", ("0", "1"), ("bad", "good"))
    split = splits.draw(examples, task, shots=8, demo_shots=2, seed=1)
    model = lm.LanguageModel.from_pretrained(str(folder))
    return method.Context(method.Problem(task, split, rows(13, 2), model.tokenize), model, {})


def test_learns(context, tmp_path):
    defaults = fine_tuning.METHODS[0].options
    prediction = fine_tuning.run(context, **{**defaults, **OPTIONS, "checkpoints": str(tmp_path)})
    want = context.classes(context.problem.evaluation)
    assert (prediction.classes_Q == want).all()
    np.testing.assert_allclose(prediction.probabilities_QC.sum(1), 1, atol=1e-6)
    assert prediction.note.startswith("30 steps of 8 rows, last loss 0.")
    again = fine_tuning.run(context, **{**defaults, **OPTIONS, "checkpoints": str(tmp_path)})
    np.testing.assert_array_equal(again.probabilities_QC, prediction.probabilities_QC)
    assert again.note == "30 steps of 8 rows"  # All of them were done before.


def test_published_numbers_by_default(context):
    options = {
        key: value for key, value in fine_tuning.METHODS[0].options.items() if key not in ("model", "checkpoints")
    }
    config = fine_tuning.configure(context.problem, **options)
    assert (config.steps, config.batch, config.learning_rate, config.max_length) == (125, 16, 1e-5, 256)
    assert (config.weight_decay, config.clip, config.dropout, config.seed) == (0.01, 1.0, 0.1, 1)


def test_unknown_model(context):
    options = {**fine_tuning.METHODS[1].options, "model": "./nowhere"}
    with pytest.raises(errors.UserError, match="no such folder: ./nowhere"):
        fine_tuning.run(context, **options)
