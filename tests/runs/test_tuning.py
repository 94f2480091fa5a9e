"""Tuning from settings to table, from rows and from a saved classifier."""

import json

import pytest

import knnprompt_jax as kp
from knnprompt_jax.runs import tuning

TEXTS = ["same text"] * 5 + ["a dog", "a cat", "why not", "who is it", "it rains", "is it"]
LABELS = [0] * 5 + [0, 1, 1, 1, 0, 1]


def test_a_table_for_each_number_of_demonstrations(tmp_path):
    (tmp_path / "talk.yaml").write_text(
        'fields: [text]\ntemplate: "{text}\\nIt is"\nlabels: [0, 1]\nlabel_words: [said, asked]\n'
    )
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {"task": str(tmp_path / "talk.yaml"), "train_file": str(tmp_path / "train.jsonl")}
    tunings = tuning.run(tuning.TuningSettings(model="tiny", **files, demo_shots=(0, 1), k=(1, 3)))
    assert [each.num_anchors for each in tunings.values()] == [11, 9]
    told = tuning.summarize(tunings)
    assert "demo_shots=0: accuracy" in told and "demo_shots=1: accuracy" in told and "best of all: demo_shots=" in told


@pytest.mark.parametrize("change", [{"demo_shots": ()}, {"demo_shots": (0, -2)}])
def test_bad_settings_are_refused(change):
    with pytest.raises(kp.UserError, match="demo_shots="):
        tuning.TuningSettings(**change)
