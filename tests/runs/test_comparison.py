"""Comparisons from settings to records and table, on a small world."""

import dataclasses

import numpy as np
import pytest

from knnprompt_jax import errors, lm
from knnprompt_jax.methods import method, registry
from knnprompt_jax.runs import comparison, main_job, records, settings

METHODS = ("icl", "knn", "contextual_calibration", "linear_probe")


@pytest.fixture
def job(world, tmp_path) -> comparison.ComparisonSettings:
    return comparison.ComparisonSettings(
        model=str(world / "model"),
        task="mr",
        data_dir=str(world / "data"),
        shots=9,
        demo_shots=2,
        seeds=(1, 2),
        label_token="first",
        methods=", ".join(METHODS),
        output=str(tmp_path / "results"),
    )


@pytest.fixture
def passes(monkeypatch):
    made, states = [], lm.LanguageModel.states

    def counted(self, prompts, *args):
        made.append(prompts.num_prompts)
        return states(self, prompts, *args)

    monkeypatch.setattr(lm.LanguageModel, "states", counted)
    return made


def test_a_record_a_run_and_method_and_one_pass_a_run(job, passes, tmp_path):
    done = comparison.run(job)
    assert passes == [14 + 13 + 3] * 2
    assert [(record.method, record.seed) for record in done] == [(name, seed) for seed in (1, 2) for name in METHODS]
    written = [records.read(path) for path in (tmp_path / "results").iterdir()]
    assert sorted((one.method, one.seed, one.predicted) for one in written) == sorted(
        (one.method, one.seed, one.predicted) for one in done
    )
    by_name = {record.method: record for record in done if record.seed == 2}
    assert by_name["icl"].lm_tokens < by_name["contextual_calibration"].lm_tokens < by_name["knn"].lm_tokens
    for record in done:
        assert record.accuracy == np.mean(
            [ours == true for ours, true in zip(record.predicted, record.true, strict=True)]
        )
        assert set(record.seconds) == {"prepare", "load", "language_model", "method"}


def test_the_main_job_finds_the_same(job, tmp_path):
    shared = {field.name: getattr(job, field.name) for field in dataclasses.fields(settings.JobSettings)}
    mine = comparison.run(dataclasses.replace(job, methods="icl,knn"))
    main = main_job.run(settings.RunSettings(**shared | {"output": str(tmp_path / "main")}))
    assert [(one.method, one.seed, one.predicted) for one in mine] == [
        (one.method, one.seed, one.predicted) for one in main
    ]


def test_a_record_knows_its_own_options_and_not_the_other_methods(job):
    alone = comparison.run(dataclasses.replace(job, methods="knn", options={"knn": {"k": 1}, "linc": {"rows": 3}}))
    beside = comparison.run(dataclasses.replace(job, methods="icl,knn", options={"knn": {"k": 1}}))
    assert alone[0].settings["methods"] == "knn" and alone[0].settings["options"]["knn"]["k"] == 1
    assert alone[0].name == beside[1].name != comparison.run(dataclasses.replace(job, methods="knn"))[0].name


def interrupted(seed: int) -> method.Method:
    """A method that is interrupted at a seed."""

    def run(context: method.Context) -> method.Prediction:
        if context.seed == seed:
            raise KeyboardInterrupt
        return method.Prediction(np.zeros(13, int), note=f"seed {context.seed}", candidates=(0.25, 0.75))

    return method.Method("own", "Own", run)


def test_what_is_finished_outlives_an_interruption_and_is_not_run_again(job, passes, tmp_path, monkeypatch):
    monkeypatch.setitem(registry.METHODS, "own", interrupted(2))
    mine = dataclasses.replace(job, methods="icl,own,knn", resume=True)
    with pytest.raises(KeyboardInterrupt):
        comparison.run(mine)
    kept = {(one.method, one.seed): one for one in records.read_all(tmp_path / "results")}
    assert set(kept) == {("icl", 1), ("own", 1), ("knn", 1), ("icl", 2)} and len(passes) == 2
    monkeypatch.setitem(registry.METHODS, "own", interrupted(-1))
    done = comparison.run(mine)
    assert [(one.seed, one.method) for one in done] == [(s, name) for s in (1, 2) for name in ("icl", "own", "knn")]
    assert passes[2:] == [14 + 13], "of seed 2 alone"
    assert all(one == kept[key] for one in done if (key := (one.method, one.seed)) in kept)
    assert sorted(one.predicted for one in records.read_all(tmp_path / "results")) == sorted(o.predicted for o in done)
    whole = comparison.run(dataclasses.replace(mine, output=str(tmp_path / "whole"), resume=False))
    assert [one.predicted for one in whole] == [one.predicted for one in done]


def test_nothing_is_loaded_where_nothing_is_missing(job, monkeypatch):
    done = comparison.run(dataclasses.replace(job, methods="icl"))
    monkeypatch.setattr(lm.LanguageModel, "from_pretrained", None)
    again = dataclasses.replace(job, methods="icl", resume=True)
    for wanted, mine in ((done, again), (done[1:], dataclasses.replace(again, seeds=(2,)))):
        assert [(one.name, one.predicted) for one in comparison.run(mine)] == [
            (one.name, one.predicted) for one in wanted
        ]


def test_records_of_other_settings_or_rows_do_not_count(job, passes, tmp_path):
    first = comparison.run(dataclasses.replace(job, methods="icl", seeds=(1,)))[0]
    other = dataclasses.replace(job, methods="icl", seeds=(1,), resume=True)
    for changes in ({"label_token": "last"}, {"shots": 8}):
        comparison.run(dataclasses.replace(other, **changes))
    records.write(tmp_path / "results", dataclasses.replace(first, true=("0",) * 13))
    assert comparison.run(other)[0].true == first.true
    assert len(passes) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": "icl,bert"}, "unknown method 'bert': choose from icl, knn,"),
        ({"methods": " , "}, "no method: choose from icl, knn,"),
        ({"options": {"bert": {}}}, "unknown method 'bert'"),
        ({"options": {"knn": {"c": 1}}}, "method 'knn' has no option 'c'"),
        ({"label_token": "middle"}, "label_token='middle'"),
    ],
)
def test_mistakes_show_before_the_weights_load(job, changes, message, monkeypatch):
    monkeypatch.setattr(lm.LanguageModel, "from_pretrained", None)
    with pytest.raises(errors.UserError, match=message):
        comparison.run(dataclasses.replace(job, **changes))
