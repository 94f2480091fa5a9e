"""Training against `transformers` and torch.optim; the order of rows; an interrupted run resumes."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from knnprompt_jax.cli.command_settings import Hyperparameters
from knnprompt_jax.common import errors
from knnprompt_jax.models import registry
from knnprompt_jax.study import sequence_classifier as texts
from knnprompt_jax.study import sequence_classifier as trainer

torch = pytest.importorskip("torch", reason="parity is with PyTorch")
import transformers  # noqa: E402

RNG = np.random.default_rng(0)
LENGTHS = (23, 7, 1, 30, 12, 5, 9)
TEXTS = texts.Texts(
    tuple(RNG.integers(1, 53, length).tolist() for length in LENGTHS),
    tuple((np.arange(length) > 3).astype(int).tolist() for length in LENGTHS),
    max_length=37,
)
Y = np.array([0, 1, 2, 0, 1, 2, 0])
HYPERPARAMETERS = Hyperparameters(steps=5, batch=3, learning_rate=3e-3, weight_decay=0.5, dropout=0.0)


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory) -> Callable:
    """Return `classifiers(name)` for "bert", "gpt2" or "phi", with 3 classes.

    It returns PyTorch's model for sequence classification and a fresh copy of ours.
    """
    common = {"vocab_size": 53, "num_labels": 3, "initializer_range": 0.3, "pad_token_id": 0}
    bert = {"hidden_size": 35, "num_attention_heads": 5, "num_hidden_layers": 2, "intermediate_size": 41}
    gpt2 = {"n_embd": 35, "n_head": 5, "n_layer": 2, "n_inner": 41, "n_positions": 37}
    configs = {
        "bert": transformers.BertConfig(**common, **bert, max_position_embeddings=37),
        "gpt2": transformers.GPT2Config(**common, **gpt2),
        "phi": transformers.PhiConfig(**common, **bert | {"hidden_size": 40}, max_position_embeddings=37),
    }
    places = {name: tmp_path_factory.mktemp(name) for name in configs}

    def make(name: str) -> tuple:
        torch.manual_seed(7)
        theirs = transformers.AutoModelForSequenceClassification.from_config(configs[name], attn_implementation="eager")
        saved = theirs.eval().base_model
        if name == "phi":  # Its files have a head with a bias.
            saved = transformers.AutoModelForCausalLM.from_config(configs[name])
            saved.model.load_state_dict(theirs.base_model.state_dict())
        saved.save_pretrained(places[name])
        config, folder = registry.describe(str(places[name]), families=(name,))
        # A copy: the trainer gives the weights' memory back.
        backbone = jax.tree.map(jnp.copy, registry.load(folder, config, jnp.float32))
        ours = trainer.SequenceClassifier(backbone, 3, nnx.Rngs(0))
        head = theirs.classifier if name == "bert" else theirs.score
        ours.head_kernel[...] = jnp.asarray(head.weight.detach().numpy().T)
        return theirs, ours

    return make


def torch_logits(model, rows):
    """Logits of rows that are padded with the model's padding token, 0, which no text holds."""
    width = max(len(TEXTS.tokens[row]) for row in rows)
    padded = {
        name: torch.tensor([[*column[row], *[0] * (width - len(column[row]))] for row in rows])
        for name, column in (("input_ids", TEXTS.tokens), ("token_type_ids", TEXTS.types))
    }
    if model.config.model_type != "bert":
        del padded["token_type_ids"]
    return model(**padded, attention_mask=(padded["input_ids"] != 0).long()).logits


def probabilities(model):
    with torch.no_grad():
        return torch_logits(model, range(7)).softmax(-1).numpy()


@pytest.mark.parametrize("name", ["bert", "gpt2", "phi"])
def test_training_follows_torch(classifiers, name):
    """Probabilities, losses and the final model equal PyTorch's.

    The test covers AdamW, weight decay, clipping, linear decay and the order of rows.
    """
    theirs, ours = classifiers(name)
    tuner = trainer.Trainer(ours, HYPERPARAMETERS, trainer.make_mesh(3))
    want_NC = probabilities(theirs)
    np.testing.assert_allclose(tuner.predict_proba(TEXTS), want_NC, atol=1e-4)
    assert np.ptp(want_NC, axis=0).max() > 0.1
    kept = ("bias", "LayerNorm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight", "layernorm.weight")
    groups = {True: [], False: []}
    for key, weight in theirs.named_parameters():
        groups[key.endswith(kept)].append(weight)
    optimizer = torch.optim.AdamW(
        [{"params": groups[False], "weight_decay": 0.5}, {"params": groups[True], "weight_decay": 0.0}],
        lr=3e-3,
        eps=1e-8,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / HYPERPARAMETERS.steps)
    want = []
    for step in range(HYPERPARAMETERS.steps):
        rows = trainer.batch_rows(7, 3, step, 0)
        loss = torch.nn.functional.cross_entropy(torch_logits(theirs, rows), torch.tensor(Y[rows]))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        want.append(loss.item())
    np.testing.assert_allclose(tuner.train(TEXTS, Y), want, rtol=2e-3)
    np.testing.assert_allclose(tuner.predict_proba(TEXTS), probabilities(theirs), atol=5e-3)


def test_epochs():
    """Every row once an epoch, each epoch in its own order, and the same for a seed."""
    stream = np.concatenate([trainer.batch_rows(7, 3, step, 5) for step in range(14)]).reshape(6, 7)
    assert (np.sort(stream) == np.arange(7)).all()
    assert len({tuple(epoch) for epoch in stream.tolist()}) > 3
    assert not np.array_equal(trainer.batch_rows(7, 7, 0, 5), trainer.batch_rows(7, 7, 0, 6))
    assert sorted(trainer.batch_rows(3, 6, 0, 0).tolist()) == [0, 0, 1, 1, 2, 2]


def test_interrupted_run_goes_on(classifiers, tmp_path, monkeypatch):
    """Stopped in the middle of step 3 of 5, with dropout: the second start ends where the uninterrupted run does."""
    config = dataclasses.replace(HYPERPARAMETERS, dropout=0.1)
    tuners = [trainer.Trainer(classifiers("bert")[1], config, trainer.make_mesh(3)) for _ in range(3)]
    losses = tuners[0].train(TEXTS, Y)
    rows_of = trainer.batch_rows

    def stop(num_rows: int, batch: int, step: int, seed: int) -> np.ndarray:
        if step == 3:
            raise KeyboardInterrupt
        return rows_of(num_rows, batch, step, seed)

    monkeypatch.setattr(trainer, "batch_rows", stop)
    with pytest.raises(KeyboardInterrupt):
        tuners[1].train(TEXTS, Y, tmp_path, 2)
    monkeypatch.setattr(trainer, "batch_rows", rows_of)
    assert tuners[2].train(TEXTS, Y, tmp_path, 2) == losses[2:]
    np.testing.assert_array_equal(tuners[2].predict_proba(TEXTS), tuners[0].predict_proba(TEXTS))


def test_loss_that_is_not_finite(classifiers):
    _, ours = classifiers("gpt2")
    ours.head_kernel[...] = jnp.full((35, 3), jnp.nan)
    with pytest.raises(errors.UserError, match="the loss is nan at step 1: lower --learning_rate"):
        trainer.Trainer(ours, HYPERPARAMETERS, trainer.make_mesh(3)).train(TEXTS, Y)
