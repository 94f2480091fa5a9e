"""The pretraining script: an interrupted run resumes to the same loss."""

import json
import pathlib

import numpy as np
import pytest

from knnprompt_jax.study import sequence_classifier as training
from tools import pretrain_tiny

SENTENCES = ["the cat sat on the mat", "a dog ran to the red barn", "rain fell on the old stone bridge all day"]
SIZES = {"vocab_size": 281, "width": 24, "layers": 2, "heads": 3, "context": 37, "steps": 5, "batch": 3, "warmup": 2}
SIZES |= {"evaluate_every": 3, "checkpoint_every": 2, "export_dtype": "float32"}


def run(folder: pathlib.Path, **changes) -> dict[str, float]:
    values = {"text": folder, "output": folder / "out", **SIZES, **changes}
    return pretrain_tiny.run(pretrain_tiny.parse([f"--{name}={value}" for name, value in values.items()]))


@pytest.mark.long
def test_an_interrupted_run_resumes_to_the_same_loss(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    documents = [" ".join(rng.choice(SENTENCES, 9)) for _ in range(311)]
    (tmp_path / "rows.txt").write_text(f"\n{pretrain_tiny.END_OF_TEXT}\n".join(documents))
    with monkeypatch.context() as patch:
        save = training.ocp.CheckpointManager.save
        stopping = lambda manager, step, **arguments: (save(manager, step, **arguments), stop(step == 4))  # noqa: E731
        patch.setattr(training.ocp.CheckpointManager, "save", stopping)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    whole, resumed = run(tmp_path, output=tmp_path / "whole"), run(tmp_path)
    assert (
        resumed["held_out_loss"] == pytest.approx(whole["held_out_loss"], abs=1e-5) and resumed["held_out_loss"] < 5.6
    )
    assert [json.loads(line)["step"] for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()] == [3, 5]
    (tmp_path / "rows.txt").write_text(f"\n{pretrain_tiny.END_OF_TEXT}\n".join(documents[1:]))
    assert run(tmp_path)["held_out_loss"] != resumed["held_out_loss"], "other text begins anew"


def stop(is_due: bool) -> None:
    if is_due:
        raise KeyboardInterrupt
