"""Fine-tuning as a job: records, what is skipped, and a killed run that resumes."""

import pathlib

import numpy as np
import pandas as pd
import pytest

from knnprompt_jax.cli.command_settings import FineTuneSettings
from knnprompt_jax.common import errors, parallel
from knnprompt_jax.inference import lm
from knnprompt_jax.report import records
from knnprompt_jax.study import fine_tuning as job
from knnprompt_jax.study import sequence_classifier as trainer
from knnprompt_jax.tasks import catalogue

WORDS = {"bad": ["cold", "grey", "rain", "wind", "storm"], "good": ["warm", "gold", "sun", "calm", "clear"]}


def write_rows(path: pathlib.Path, count: int, seed: int) -> None:
    """Write rows whose words tell their label."""
    rng = np.random.default_rng(seed)
    rows = [(" ".join(rng.choice(WORDS[label], 5)), label) for label in ("bad", "good") * (count // 2)]
    pd.DataFrame(rows, columns=["text", "label"]).to_csv(path, index=False)


@pytest.fixture
def options(tmp_path) -> dict:
    write_rows(tmp_path / "train.csv", 40, 1)
    write_rows(tmp_path / "test.csv", 14, 2)
    files = {f"{name}_file": str(tmp_path / f"{split}.csv") for name, split in (("train", "train"), ("eval", "test"))}
    training = {"shots": (8,), "seeds": (1,), "steps": 30, "batch": 8, "learning_rate": 1e-3}
    places = {name: str(tmp_path / name) for name in ("output", "checkpoints")}
    return {"model": "tiny", "tasks": ("own",)} | files | training | places


def test_learns_and_writes_a_record_like_other_methods(options, tmp_path):
    (record,) = job.run(FineTuneSettings(**options | {"experiment": "low_resource"}))
    assert record.accuracy == 1
    assert record.experiment == "low_resource"
    assert record.predicted == record.true
    assert record.note.startswith("30 steps of 8 rows, last loss 0.")
    assert (record.method, record.model, record.shots, record.demo_shots) == ("fine_tuning", "tiny", 8, 0)
    tokenizer = lm.LanguageModel.from_pretrained("tiny").tokenizer
    texts = pd.read_csv(tmp_path / "test.csv")["text"]
    tokens = [len(tokenizer(text)["input_ids"]) for text in texts]
    maximum = 3 * 30 * 8 * max(tokens)
    assert record.prompts == 14
    assert sum(tokens) + maximum / 2 < record.lm_tokens <= sum(tokens) + maximum
    assert records.read_all(tmp_path / "output" / "low_resource") == [record]
    assert not list((tmp_path / "checkpoints").iterdir()), "a finished run needs no checkpoint"


def test_a_finished_run_is_skipped_and_another_seed_is_not(options, monkeypatch):
    first = job.run(FineTuneSettings(**options | {"steps": 2}))
    trained = []
    train = trainer.Trainer.train
    monkeypatch.setattr(trainer.Trainer, "train", lambda self, *given: trained.append(self.seed) or train(self, *given))
    repeated = {"seeds": (1, 2, 1), "shots": (8, 8)}
    again = job.run(FineTuneSettings(**options | repeated | {"steps": 2, "checkpoint_every": 7}))
    assert again[0] == first[0] and len(again) == 2
    assert trained == [2]


def test_everything_that_changes_a_result_changes_the_key(options, monkeypatch):
    base = next(job.plan(FineTuneSettings(**options)))
    changes = {"steps": 31, "batch": 7, "learning_rate": 2e-3, "dropout": 0.0, "shots": (7,), "seeds": (2,)}
    for change in ({name: value} for name, value in changes.items()):
        assert next(job.plan(FineTuneSettings(**options | change))).key != base.key
    for change in ({"checkpoint_every": 7}, {"checkpoints": "elsewhere"}, {"output": "elsewhere"}):
        assert next(job.plan(FineTuneSettings(**options | change))).key == base.key
    monkeypatch.setattr(parallel, "platform", lambda: "gpu")
    assert next(job.plan(FineTuneSettings(**options))).key != base.key


def test_a_damaged_checkpoint_is_named(options, tmp_path, monkeypatch):
    monkeypatch.setattr(records, "write", lambda *_: None)
    monkeypatch.setattr(job.shutil, "rmtree", lambda *_, **__: None)
    job.run(FineTuneSettings(**options | {"steps": 2}))
    for path in (tmp_path / "checkpoints").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:1])
    with pytest.raises(errors.UserError, match=r"damaged checkpoint \(.*\); remove it to begin anew"):
        job.run(FineTuneSettings(**options | {"steps": 2}))


def test_a_model_that_does_not_exist_is_refused_before_rows_are_read(options, monkeypatch):
    monkeypatch.setattr(catalogue, "get", None)
    with pytest.raises(errors.UserError, match="model './nowhere': no such folder"):
        job.run(FineTuneSettings(**options | {"model": "./nowhere"}))
