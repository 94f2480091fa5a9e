"""The main job from settings to records and table, on a small world."""

import dataclasses
import json
import random

import jax
import numpy as np
import pytest
from flax import nnx

from knnprompt_jax import errors, lm
from knnprompt_jax.runs import main_job, records, settings


@pytest.fixture
def job(world, tmp_path) -> settings.RunSettings:
    return settings.RunSettings(
        model=str(world / "model"),
        task="mr",
        data_dir=str(world / "data"),
        shots=9,
        demo_shots=2,
        seeds=(1, 2),
        output=str(tmp_path / "results"),
    )


def test_records_hold_what_the_definition_gives(job, world):
    done = main_job.run(job)
    assert [(record.method, record.seed) for record in done] == [("icl", 1), ("knn", 1), ("icl", 2), ("knn", 2)]
    rows = [json.loads(line) for line in (world / "data/mr/train.jsonl").read_text().splitlines()]
    tests = [json.loads(line) for line in (world / "data/mr/dev_subsample.jsonl").read_text().splitlines()]
    model = lm.LanguageModel.from_pretrained(str(world / "model"))
    for record in done:
        assert record.true == tuple(row["label"] for row in tests)
        expected = _published(model, rows, tests, record.seed)[record.method]
        assert list(record.predicted) == expected
        assert record.accuracy == np.mean([ours == row["label"] for ours, row in zip(expected, tests, strict=True)])


def _published(model, rows, tests, seed):
    """One prompt at a time, in NumPy float64, from the definitions; direction KL(p || k_i)."""

    def sample(rows, shots):
        random.seed(seed)
        by_class = {}
        for row in rows:
            by_class.setdefault(row["label"], []).append(row)
        drawn = [row for members in by_class.values() for row in random.sample(members, min(shots, len(members)))]
        random.shuffle(drawn)
        return drawn

    def probabilities(row):
        ids = model.tokenizer(prefix + f"Review: {row['sentence']}\nSentiment:")["input_ids"]
        assert len(ids) <= model.context
        padded = np.pad(ids, (0, model.context - len(ids)))  # On the right, where no token before it looks.
        hidden = np.asarray(read(padded[None])[0, len(ids) - 1], np.float64)
        logits = np.asarray(decoder.head.rows_VE, np.float64) @ hidden
        exps = np.exp(logits - logits.max())
        return exps / exps.sum()

    decoder = nnx.merge(model._graph, model._params)
    read = jax.jit(lambda tokens: decoder(tokens))
    demonstrations = sample(rows, 2)
    left = list(rows)
    for row in demonstrations:
        left.remove(row)
    anchors = sample(left, 7)
    words = {"0": "negative", "1": "positive"}
    prefix = "".join(f"Review: {row['sentence']}\nSentiment: {words[row['label']]}\n\n" for row in demonstrations)
    ids = [model.tokenizer(" " + word)["input_ids"][-1] for word in words.values()]
    keys = np.array([probabilities(row) for row in anchors])
    predicted = {"icl": [], "knn": []}
    for row in tests:
        p = probabilities(row)
        predicted["icl"].append(str(int(np.argmax(p[ids]))))
        nearest = np.argsort((p * np.log(p / keys)).sum(1), kind="stable")[:3]
        votes = [sum(anchors[index]["label"] == label for index in nearest) for label in words]
        predicted["knn"].append(str(int(np.argmax(votes))))
    return predicted


def test_one_compilation_of_the_pass_serves_all_seeds(job, monkeypatch):
    seen = []
    original = lm.LanguageModel.states

    def states(self, *arguments, **options):
        result = original(self, *arguments, **options)
        seen.append(self.statistics.compilations)
        return result

    monkeypatch.setattr(lm.LanguageModel, "states", states)
    main_job.run(dataclasses.replace(job, seeds=(1, 2, 3)))
    assert seen == [2, 2, 2]  # One program reads the prefix, one the suffixes.


def test_records_are_written_once_and_read_back(job, tmp_path):
    done = main_job.run(job)
    main_job.run(job)
    files = sorted((tmp_path / "results").iterdir())
    assert len(files) == len(done)
    read = {file.name: records.read(file) for file in files}
    for record in done:
        assert read[record.name].predicted == record.predicted
        assert read[record.name].settings["shots"] == 9
        assert set(read[record.name].seconds) == {"prepare", "load", "language_model", "method"}


def test_the_table_names_methods_sizes_and_costs(job):
    text = main_job.summarize(main_job.run(job))
    for expected in ("In-context learning", "kNN Prompting", "±", "0: 2+7", "truncated 0", "prompts/s"):
        assert expected in text


def test_truncated_prompts_are_counted_and_still_classified(job):
    done = main_job.run(dataclasses.replace(job, demo_shots=6, shots=9, seeds=(1,)))
    assert done[0].truncated_prompts > 0
    assert len(done[0].predicted) == 13


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "nope"}, "unknown task 'nope'; choose from"),
        ({"shots": 0}, "shots=0"),
        ({"demo_shots": 9}, "leaves no anchors"),
        ({"k": 0}, "k=0"),
        ({"seeds": ()}, "at least one seed"),
        ({"direction": "sideways"}, "forward, released"),
        ({"representation": "colour"}, "distribution, partial"),
        ({"representation": "hidden", "centroid": "arithmetic"}, "averages distributions"),
        ({"datastore_approximate_recall": 1.5}, "choose from 0"),
        ({"dtype": "int4"}, "float32, bfloat16"),
        ({"truncation": "error", "demo_shots": 7}, "the context 128"),
        ({"model": "./nowhere"}, "no such folder"),
        ({"data_dir": "nowhere"}, "no such folder"),
        ({"split": "test"}, "test"),
        ({"train_file": "only.csv"}, "go together"),
    ],
)
def test_mistakes_show_before_weights_load_and_write_nothing(job, change, message, monkeypatch, tmp_path):
    monkeypatch.setattr(lm.LanguageModel, "from_pretrained", None)
    with pytest.raises(errors.UserError, match=message):
        main_job.run(dataclasses.replace(job, **change))
    assert not (tmp_path / "results").exists()


def test_unknown_options_are_refused_with_the_choices():
    with pytest.raises(errors.UserError, match="unknown option 'shot'.*shots"):
        settings.from_config(settings.RunSettings, {"shot": 3})


def test_csv_rows_give_the_same_predictions(job, world, tmp_path):
    for split in ("train", "dev_subsample"):
        rows = [json.loads(line) for line in (world / f"data/mr/{split}.jsonl").read_text().splitlines()]
        text = "sentence,label\n" + "".join(f'"{row["sentence"]}",{row["label"]}\n' for row in rows)
        (tmp_path / f"{split}.csv").write_text(text)
    files = {
        "train_file": str(tmp_path / "train.csv"),
        "eval_file": str(tmp_path / "dev_subsample.csv"),
        "data_dir": "",
    }
    csv, jsonl = (main_job.run(one) for one in (dataclasses.replace(job, **files), job))
    assert [record.predicted for record in csv] == [record.predicted for record in jsonl]
