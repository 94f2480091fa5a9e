"""Pretraining: text, tokenizer, loop, resume, export."""

import dataclasses
import gzip
import json
import math
import pathlib
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from knnprompt_jax import errors
from knnprompt_jax.models import training
from knnprompt_jax.pretraining import bpe, job, text, trainer
from knnprompt_jax.pretraining import settings as settings_lib

SENTENCES = ["the cat sat on the mat", "a dog ran to the red barn", "rain fell on the old stone bridge all day"]


@pytest.fixture
def settings(tmp_path) -> settings_lib.PretrainSettings:
    rng = np.random.default_rng(0)
    documents = [" ".join(rng.choice(SENTENCES, 9)) for _ in range(311)]
    with gzip.open(tmp_path / "one.txt.gz", "wt") as file:
        file.write("\n<|endoftext|>\n".join(documents[:200]))
    (tmp_path / "two.txt").write_text("\n<|endoftext|>\n".join(documents[200:]))
    return settings_lib.PretrainSettings(
        text=(str(tmp_path),),
        output=str(tmp_path / "out"),
        vocab_size=281,
        width=24,
        layers=2,
        heads=3,
        context=37,
        steps=7,
        batch=3,
        warmup=2,
        evaluate_every=3,
        checkpoint_every=2,
        export_dtype="float32",
    )


def test_documents_end_at_the_marker_and_at_the_end_of_a_file(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n<|endoftext|>\nthree\n")
    assert list(text.read_documents([tmp_path / "a.txt"])) == ["one\ntwo", "three"]


def test_held_out_documents_are_not_trained_on():
    train, held_out = text.split_held_out([str(number) for number in range(1, 251)])
    assert held_out == ["100", "200"]
    assert len(train) == 248 and not set(train) & set(held_out)


def test_blocks_cover_an_epoch_once_and_overlap_by_one_token():
    documents = [np.arange(start, start + 10) for start in range(0, 100, 10)]
    blocks = text.blocks(documents, 7, seed=5, epoch=1)
    assert blocks.shape == (14, 8)
    assert (blocks[1:, 0] == blocks[:-1, -1]).all()
    assert len(set(blocks[:, :-1].ravel())) == 98
    assert (blocks != text.blocks(documents, 7, seed=5, epoch=2)).any()


def test_the_tokenizer_has_the_size_asked_for_and_loses_nothing():
    tokenizer = bpe.train(SENTENCES * 5, 290)
    assert tokenizer.get_vocab_size() == 290
    assert tokenizer.token_to_id(text.END_OF_TEXT) == 289
    for sample in (*SENTENCES, "naïve 🙂\n\n tabs\t"):
        assert tokenizer.decode(tokenizer.encode(sample).ids) == sample


def test_losses_equal_those_of_pytorch(settings):
    result = job.run(settings)
    folder = settings.output + "/model"
    model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    _, held_out = text.split_held_out(list(text.read_documents(text.find_files(settings.text))))
    documents = [np.array([*tokenizer(document)["input_ids"], tokenizer.eos_token_id]) for document in held_out]
    tokens = torch.tensor(text.blocks(documents, settings.context, 0, 0).astype(np.int64))
    tokens = tokens[: len(tokens) // settings.batch * settings.batch]
    with torch.no_grad():
        logits = model(tokens[:, :-1]).logits
        expected = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:]).item()
    assert result["held_out_loss"] == pytest.approx(expected, abs=2e-4)
    assert result["held_out_perplexity"] == pytest.approx(math.exp(expected), rel=1e-3)


def test_it_learns(settings):
    longer = dataclasses.replace(settings, steps=60, evaluate_every=60)
    assert job.run(longer)["held_out_loss"] < 3.5 < math.log(281)


def test_an_interrupted_run_ends_as_an_uninterrupted_one(settings, monkeypatch):
    whole = job.run(settings)
    shutil.rmtree(settings.output)
    original = training.Checkpoints.save

    def save_and_stop(self, step, *state):
        original(self, step, *state)
        if step == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(training.Checkpoints, "save", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        job.run(settings)
    monkeypatch.undo()
    assert job.run(settings)["held_out_loss"] == pytest.approx(whole["held_out_loss"], abs=1e-5)
    log = pathlib.Path(settings.output, "log.jsonl").read_text(encoding="utf-8")
    steps = [json.loads(line)["step"] for line in log.splitlines()]
    assert steps == [3, 6, 7]


def test_rematerialisation_changes_nothing(settings):
    from flax import nnx

    from knnprompt_jax.models import decoder

    model = decoder.Decoder(settings.model_config, nnx.Rngs(0))
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 281, (2, 20)))
    plain, remat = (nnx.grad(lambda m, r=r: trainer.token_losses(m, tokens, r).mean())(model) for r in (False, True))
    for (_, a), (_, b) in zip(nnx.to_flat_state(plain), nnx.to_flat_state(remat), strict=True):
        np.testing.assert_allclose(a[...], b[...], atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": ()}, "text=.*: it is needed: .txt"),
        ({"text": ("nowhere/*.txt",)}, "no text files at 'nowhere"),
        ({"heads": 5}, "heads=5 does not divide width=24"),
        ({"vocab_size": 100}, "at least 257"),
        ({"vocab_size": 40000}, "a smaller vocab_size"),
        ({"context": 100000}, "fewer than one block"),
        ({"export_dtype": "int8"}, "float16, bfloat16, float32"),
    ],
)
def test_mistakes_are_told(settings, change, message):
    with pytest.raises(errors.UserError, match=message):
        job.run(dataclasses.replace(settings, **change))


def test_a_folder_with_another_models_checkpoints_is_refused(settings):
    job.run(settings)
    with pytest.raises(errors.UserError, match="another run: n_embd=24, now 36"):
        job.run(dataclasses.replace(settings, width=36))
