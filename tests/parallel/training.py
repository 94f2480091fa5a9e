"""Train a classifier on one device and, of eight, on the two that divide its batch; check where the arrays are."""

import jax
import numpy as np
from flax import nnx

from knnprompt_jax.cli.command_settings import Hyperparameters
from knnprompt_jax.models import registry
from knnprompt_jax.models.families import bert
from knnprompt_jax.study import sequence_classifier as texts
from knnprompt_jax.study import sequence_classifier as trainer


def main() -> None:
    sizes = {"vocab_size": 53, "hidden_size": 35, "num_hidden_layers": 2, "num_attention_heads": 5}
    sizes |= {"model_type": "bert", "intermediate_size": 41, "max_position_embeddings": 37}
    config = registry.config_from_hf(sizes, registry.ENCODERS)
    rng = np.random.default_rng(0)
    lengths = (3, 9, 17, 4, 30)
    losses = []
    tokens = tuple(rng.integers(0, 53, length).tolist() for length in lengths)
    rows = texts.Texts(tokens, tuple([0] * length for length in lengths), 37)
    for batch_mesh in (1, 6):
        model = trainer.SequenceClassifier(bert.Encoder(config, nnx.Rngs(1)), 3, nnx.Rngs(2))
        settings = Hyperparameters(steps=2, batch=6, learning_rate=1e-3)
        tuner = trainer.Trainer(model, settings, trainer.make_mesh(batch_mesh))
        losses.append(tuner.train(rows, np.array([0, 1, 2, 1, 0])))
    np.testing.assert_allclose(*losses, rtol=1e-5)
    leaf = jax.tree.leaves(tuner._params)[0]
    batch, *_ = tuner._put(*rows.batch([0, 1, 2, 3, 4, 0], 6, 32))
    assert leaf.sharding.is_fully_replicated and len(leaf.devices()) == 2
    assert dict(tuner.mesh.shape) == {"data": 2, "model": 1} and batch.addressable_shards[0].data.shape == (3, 32)
    assert tuner.predict_proba(rows).shape == (5, 3)
    print("training")
