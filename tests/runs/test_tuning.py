"""Tuning from settings to table, from rows and from a saved classifier."""

import json

import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import options
from knnprompt_jax.runs import fitting, tuning

TEXTS = ["same text"] * 5 + ["a dog", "a cat", "why not", "who is it", "it rains", "is it", "it snows", "are you"]
LABELS = [0] * 5 + [0, 1, 1, 1, 0, 1, 0, 1]
PUBLISHED = options.RuleOptions(k=3, distance="forward", calibrated=False)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "talk.yaml").write_text(
        'fields: [text]\ntemplate: "{text}\\nIt is"\nlabels: [0, 1]\nlabel_words: [said, asked]\n'
    )
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"task": str(tmp_path / "talk.yaml"), "train_file": str(tmp_path / "train.jsonl")}


def test_a_table_with_baselines_and_the_command_that_uses_the_best(files):
    settings = tuning.TuningSettings(model="tiny", **files, demo_shots=(1, 0), k=(1, 3), metric="accuracy")
    done = tuning.run(settings)
    assert {each.rule.demo_shots for each in done.tuning.choice.candidates} == {0, 1}
    assert done.tuning.choice.num_anchors == 11 and done.tuning.choice.metric == "accuracy"
    told = tuning.summarize(done)
    assert "commonest class" in told and "TF-IDF, logistic regression" in told
    assert f"to use it: knnprompt fit --model=tiny --task={files['task']}" in told
    assert f"--knn.rule={done.tuning.best.rule}" in done.command and "--demo_shots=" in done.command


def test_the_best_is_saved_in_the_folder_of_a_classifier(files, tmp_path):
    store = str(tmp_path / "saved")
    fitting.building.run(fitting.FitSettings(model="tiny", **files, store=store, demo_shots=0, knn=PUBLISHED))
    done = tuning.run(tuning.TuningSettings(store=store))
    assert "k=15, 25, 51 left out: there are 12 other anchors" in tuning.summarize(done)
    assert "--config.apply" in done.command and not kp.KNNPrompting.load(store).choice_.candidates
    applied = tuning.run(tuning.TuningSettings(store=store, apply=True))
    loaded = kp.KNNPrompting.load(store)
    assert "saved" in tuning.summarize(applied).splitlines()[-1]
    assert loaded.choice_ == applied.tuning.choice and loaded.rule_ == done.tuning.best
    assert set(loaded.predict(["who is", "a dog"])) <= {"0", "1"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"demo_shots": ()}, "demo_shots="),
        ({"demo_shots": (0, -2)}, "demo_shots="),
        ({"apply": True}, "apply=True: name the folder"),
        ({"metric": "luck"}, "metric='luck': choose from log_loss, accuracy, macro_f1"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(kp.UserError, match=message):
        tuning.TuningSettings(**change)
