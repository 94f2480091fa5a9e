"""A small world to run whole jobs in: a task in a folder, a tokenizer trained on it, a tiny GPT-2."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
from flax import nnx

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.models import decoder, registry
from knnprompt_jax.report import records
from tools import pretrain_tiny

WORDS = {"0": ["cold", "grey", "rain", "wind", "storm"], "1": ["warm", "gold", "sun", "calm", "clear"]}


def _rows(count: int, seed: int) -> list[dict]:
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        label = str(number % 2)
        words = rng.choice(WORDS[label], size=rng.integers(2, 7))
        rows.append({"sentence": f"day {number} {seed} was {' '.join(words)}", "label": label})
    return rows


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> pathlib.Path:
    """A folder with `data/mr/{train,dev_subsample}.jsonl` and `model/`, a Hugging Face folder."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "data" / "mr").mkdir(parents=True)
    for split, count, seed in (("train", 60, 1), ("dev_subsample", 13, 2)):
        lines = "".join(json.dumps(row) + "\n" for row in _rows(count, seed))
        (folder / "data" / "mr" / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    texts = [f"Review: {row['sentence']}\nSentiment: negative positive\n\n" for row in _rows(60, 1)]
    tokenizer = pretrain_tiny.train_tokenizer(texts * 3, 311)
    sizes = {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_inner": 44, "n_positions": 128}
    config = registry.config_from_hf({"model_type": "gpt2", "vocab_size": tokenizer.get_vocab_size(), **sizes})
    model = decoder.Decoder(config, nnx.Rngs(3))
    for path, weight in nnx.to_flat_state(nnx.state(model)):
        # Peaked distributions that depend on the text: neighbours which float32 can rank.
        weight[...] *= 25 if path == ("tokens",) else 10 if path[-1].endswith("kernel") else 1
    pretrain_tiny.export(folder / "model", model, tokenizer, "float32")
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Give each test a cache of its own."""
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def job(world, tmp_path) -> grids.ComparisonSettings:
    places = {"model": str(world / "model"), "data_dir": str(world / "data"), "output": str(tmp_path / "results")}
    return grids.ComparisonSettings(task="mr", shots=9, demo_shots=2, seeds=(1, 2), methods="icl, knn", **places)


def choosing(job, **options):
    """The job with other options of methods, as `knn={"k": 1}`."""
    chosen = {name: dataclasses.replace(getattr(job, name), **values) for name, values in options.items()}
    return dataclasses.replace(job, **chosen)


def make_record(**fields) -> records.Record:
    """A record of four rows, of which three are right."""
    given = {"key": "5a" * 32, "file_name": "mr-gpt2-knn.json", "task": "mr", "model": "gpt2", "method": "knn"}
    given |= {"seed": 3, "shots": 7, "demo_shots": 2, "settings": {"k": 3}}
    given |= {"accuracy": 0.75, "predicted": ("0", "1", "1", "1"), "true": ("0", "1", "1", "0")}
    return records.Record(**given | fields)
