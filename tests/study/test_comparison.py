"""Comparisons from settings to records and table, on a small world."""

import dataclasses
import json
import types

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.common import errors
from knnprompt_jax.methods import all_methods, method
from knnprompt_jax.models import registry
from knnprompt_jax.report import records
from knnprompt_jax.study import comparison, job_inputs
from knnprompt_jax.tasks import catalogue, splits
from knnprompt_jax.tasks.table_file import Table
from knnprompt_jax.tasks.task import Example
from tests.study.small_world import make_record

METHODS = ("icl", "knn", "contextual_calibration", "linear_probe")


def predictions(done):
    return [(one.method, one.seed, one.predicted) for one in done]


def test_a_record_per_run_and_method_and_one_pass_and_compilation_for_all(job, passes, tmp_path):
    done = comparison.run(dataclasses.replace(job, methods=", ".join(METHODS), label_token="first"))
    # One program reads the prefix, one the suffixes.
    assert passes == [(14 + 13 + 3, 2)] * 2
    assert [(record.method, record.seed) for record in done] == [(name, seed) for seed in (1, 2) for name in METHODS]
    assert sorted(predictions(records.read_all(tmp_path / "results"))) == sorted(predictions(done))
    for record in done:
        assert record.accuracy == np.mean(np.array(record.predicted) == np.array(record.true))
    by_name = {record.method: record for record in done if record.seed == 2}
    assert by_name["icl"].lm_tokens < by_name["contextual_calibration"].lm_tokens < by_name["knn"].lm_tokens
    assert [by_name[name].prompts for name in METHODS] == [13, 27, 16, 27]


def interrupted(seed: int) -> method.Method:
    """A method that is interrupted at a seed."""

    def predict(context, chosen):
        del chosen
        if context.seed == seed:
            raise KeyboardInterrupt
        return method.Prediction(np.zeros(13, int), note=f"seed {context.seed}", candidates=(0.25, 0.75))

    return dataclasses.replace(all_methods.get("tfidf"), predict=predict, check=lambda problem, options: None)


def test_what_is_finished_outlives_an_interruption_and_is_not_run_again(job, passes, tmp_path, monkeypatch):
    monkeypatch.setitem(all_methods.METHODS, "tfidf", interrupted(2))
    mine = dataclasses.replace(job, methods="icl,tfidf,knn", resume=True, cache_gb=0)
    with pytest.raises(KeyboardInterrupt):
        comparison.run(mine)
    kept = {(one.method, one.seed): one for one in records.read_all(tmp_path / "results")}
    assert set(kept) == {("icl", 1), ("tfidf", 1), ("knn", 1), ("icl", 2)} and len(passes) == 2
    monkeypatch.setitem(all_methods.METHODS, "tfidf", interrupted(-1))
    done = comparison.run(mine)
    assert [(one.seed, one.method) for one in done] == [(s, name) for s in (1, 2) for name in ("icl", "tfidf", "knn")]
    assert [prompts for prompts, _ in passes[2:]] == [14 + 13], "of seed 2 alone"
    assert all(one == kept[key] for one in done if (key := (one.method, one.seed)) in kept)
    whole = comparison.run(dataclasses.replace(mine, output=str(tmp_path / "whole"), resume=False))
    assert predictions(whole) == predictions(done)


def outcomes(done):
    return [(one.method, one.seed, one.predicted, one.lm_tokens, one.prompts) for one in done]


def test_other_methods_and_shots_read_no_prompt_again(job, passes):
    first = comparison.run(job)
    assert [prompts for prompts, _ in passes] == [14 + 13, 14 + 13]
    again = comparison.run(dataclasses.replace(job, methods="knn_l2,icl,knn"))
    assert len(passes) == 2 and outcomes(again)[1:3] == outcomes(first)[:2]
    assert again[0].seconds["language_model"] == 0 and again[0].prompts_per_second == 0
    comparison.run(dataclasses.replace(job, shots=7))
    assert sum(prompts for prompts, _ in passes[2:]) < 2 * (10 + 13), "anchors of 9 shots are among those of 7"


def test_a_methods_own_passes_are_cached_too(job, passes):
    """A method that reads no prompts makes no pass."""
    job = dataclasses.replace(job, methods="icl_ensemble,prompt_compose_bm25,tfidf", seeds=(1,))
    first, count = comparison.run(job), len(passes)
    assert outcomes(comparison.run(job)) == outcomes(first) and len(passes) == count > 2
    assert first[-1].lm_tokens == 0


def test_nothing_is_loaded_where_nothing_is_missing(job, monkeypatch):
    done = comparison.run(dataclasses.replace(job, methods="icl"))
    monkeypatch.setattr(registry, "load", None)
    again = dataclasses.replace(job, methods="icl", resume=True)
    for wanted, mine in ((done, again), (done[1:], dataclasses.replace(again, seeds=(2,)))):
        assert predictions(comparison.run(mine)) == predictions(wanted)


def test_a_smaller_context_holds_fewer_demonstrations(job):
    job = dataclasses.replace(job, methods="tfidf", seeds=(1,), demo_shots=-1)
    whole, half = (comparison.run(dataclasses.replace(job, context=context))[0] for context in (0, 64))
    assert whole.demo_shots > half.demo_shots and whole.settings["context"] == 128 != half.settings["context"]
    assert half.source["context"] == 64


@pytest.mark.parametrize(
    ("change", "message"),
    [({"context": 129}, "context=129: .* reads at most 128 tokens"), ({"model": "./nowhere"}, "nowhere")],
)
def test_mistakes_show_before_weights_load_and_write_nothing(job, change, message, monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "load", None)
    with pytest.raises(errors.UserError, match=message):
        comparison.run(dataclasses.replace(job, **change))
    assert not (tmp_path / "results").exists()


def test_a_text_longer_than_the_context_is_reported_for_every_order_of_seeds(tmp_path, caplog):
    """One of 40 rows is too long; it is an anchor of one of two seeds only."""
    rows = [{"text": f"some {number}", "label": "ab"[number % 2]} for number in range(40)]
    rows[7]["text"] = "word " * 200
    for name, some in (("train", rows), ("test", rows[:4])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    given = {"train_file": str(tmp_path / "train.jsonl"), "eval_file": str(tmp_path / "test.jsonl"), "task": "own"}
    task, train = Table(given["train_file"]).infer()

    def part(seed):
        drawn = splits.draw(train, task, shots=4, demo_shots=1, seed=seed)
        return [any(row.row == 7 for row in rows) for rows in (drawn.demonstrations, drawn.anchors)]

    long, short = (next(seed for seed in range(99) if part(seed) == [False, wanted]) for wanted in (True, False))
    for seeds in ((long, short), (short, long)):
        caplog.clear()
        settings = {"shots": 4, "demo_shots": 1, "seeds": seeds, "context": 100, "methods": "knn", "cache_gb": 0}
        output = str(tmp_path / f"{seeds[0]}")
        comparison.run(grids.ComparisonSettings(model="tiny", **given, **settings, output=output))
        assert "1 texts exceed the context of 100 tokens" in caplog.text


def test_the_printed_table():
    notes = {1: {"note": "best of 2, CHOSEN", "candidates": (0.75, 0.25)}}
    notes[2] = {"note": "best of 3", "candidates": (0.75, 0.5)}
    done = []
    for seed in (1, 2):
        costs = {"seed": seed, "prompts": 30, "truncated_prompts": 3, "lm_tokens": 1000 * seed}
        done.append(make_record(method="icl", accuracy=0.25, **costs))
        done.append(make_record(method="noisy_channel", accuracy=0.75, **costs, **notes[seed]))
    text = " ".join(comparison.describe_comparison(done).split())
    for expected in (
        "50.0 %), 2 seeds",
        "learning 25.0 ± 0.0 1,500",
        "mean of its 2 56.2 ± 8.8",
        "2, CHOSEN",
        "6 of 60",
    ):
        assert expected in text
    assert "best of 3" not in text


@pytest.mark.parametrize(("are_published", "m_t"), [(True, 16), (False, 2)])
def test_m_t_of_own_rows_is_not_that_of_the_paper(are_published, m_t):
    rows = [Example({"sentence": "a long story " * 60}, str(number % 2), number) for number in range(8)]
    config = types.SimpleNamespace(vocab_size=50257)
    model = types.SimpleNamespace(config=config, context=1024, tokenize=kp.demo_model("tiny").tokenize)
    found = job_inputs.Rows(catalogue.get("sst2"), rows, rows[:2], are_published)
    assert job_inputs.max_demo_shots(found, model) == m_t
