"""Keys of runs: everything that can change a result changes the key, and nothing else does."""

import dataclasses
import shutil

import pytest
from jax.sharding import AbstractMesh

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.common import errors, parallel
from knnprompt_jax.common import options as options_lib
from knnprompt_jax.inference import lm
from knnprompt_jax.methods import all_methods
from knnprompt_jax.methods import method as method_lib
from knnprompt_jax.study import engine
from knnprompt_jax.study import job_inputs as inputs
from knnprompt_jax.tasks import splits
from tests.study.small_world import choosing

# Options that change no result by themselves. Some act through rows, task or model, which are compared by content.
THROUGH_CONTENT = "model task train_file eval_file data_dir hub drop_duplicates split encoding delimiter on_bad context"
# Batch and mesh may change a state's last digits, and are not part of its key.
NEUTRAL = f"{THROUGH_CONTENT} label_column text_columns output cache_gb resume methods distributed batch mesh".split()


@pytest.fixture(scope="module")
def model(world):
    return lm.LanguageModel.from_pretrained(str(world / "model"))


@pytest.fixture(scope="module")
def rows(world):
    return inputs.load_rows(grids.ComparisonSettings(task="mr", data_dir=str(world / "data")), "mr")


def run_of(job, rows, model, name="knn", seed=1):
    model = inputs.read_model(model.name, job)
    split = splits.draw(rows.train, rows.task, shots=job.shots, demo_shots=job.demo_shots, seed=seed)
    problem = method_lib.Problem(rows.task, split, rows.evaluation, model.tokenize, job.label_token)
    method = all_methods.get(name)
    return engine.MethodRun(
        name=name, method=method, options=method.options(job), problem=problem, model=model, store_options=job.datastore
    )


def other_value(value, declared):
    """Return another value of an option."""
    if declared["choices"]:
        return next(choice for choice in declared["choices"] if choice != value)
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value + (0.25 if declared["most"] is not None or value < 1 else 1.0)
    raise AssertionError(f"no other value of {value!r}")


def test_every_option_of_a_run_changes_the_key(job, rows, model):
    job = dataclasses.replace(job, dtype="float32")
    keys = {"": run_of(job, rows, model).key}
    for field in dataclasses.fields(job):
        if field.name in NEUTRAL or field.name in all_methods.MethodOptions.groups():
            continue
        if "group" in field.metadata:
            group = getattr(job, field.name)
            for inner in dataclasses.fields(group):
                value = other_value(getattr(group, inner.name), inner.metadata)
                changed = dataclasses.replace(job, **{field.name: dataclasses.replace(group, **{inner.name: value})})
                keys[f"{field.name}.{inner.name}"] = run_of(changed, rows, model).key
        elif field.name == "seeds":
            keys["seeds"] = run_of(job, rows, model, seed=2).key
        else:
            value = 0 if field.name == "demo_shots" else other_value(getattr(job, field.name), field.metadata)
            keys[field.name] = run_of(dataclasses.replace(job, **{field.name: value}), rows, model).key
    assert len({*keys.values()}) == len(keys), keys
    assert {"dtype", "deterministic", "datastore.kind", "shots"} <= {*keys}


def test_every_option_of_every_method_changes_the_key(job, rows, model, world, monkeypatch):
    monkeypatch.setattr(lm, "find_fingerprint", lambda name, weights: "0" * 64)
    for name, declared in all_methods.METHODS.items():
        keys = {"": run_of(job, rows, model, name).key}
        for option, default, metadata in options_lib.declarations(all_methods.MethodOptions.groups()[declared.base]):
            if option in declared.preset:
                continue
            if declared.preset and option in ("centroid", "distance"):
                continue  # Class means need a distance between distributions.
            if isinstance(default, str) and not metadata["choices"] or isinstance(default, tuple):
                continue  # Names of models and lists, which other tests change.
            changed = choosing(job, **{declared.base: {option: other_value(default, metadata)}})
            keys[option] = run_of(changed, rows, model, name).key
        assert len({*keys.values()}) == len(keys), (name, keys)


def test_every_field_of_the_task_and_its_rows_changes_the_key(job, rows, model):
    job = dataclasses.replace(job, shots=60)  # All rows of the train file.
    changes = [
        {"name": "other"},
        {"template": f"{rows.task.template}!"},
        {"labels": rows.task.labels[::-1]},
        {"label_words": ("bad", "good")},
        {"retrieval_template": "x {sentence}"},
    ]
    changed = [{"task": dataclasses.replace(rows.task, **change)} for change in changes]
    for part in ("train", "evaluation"):
        first, *others = getattr(rows, part)
        for change in ({"fields": {"sentence": "another text"}}, {"label": "1" if first.label == "0" else "0"}):
            changed.append({part: [dataclasses.replace(first, **change), *others]})
    keys = {run_of(job, dataclasses.replace(rows, **change), model).key for change in ({}, *changed)}
    assert len(keys) == 1 + len(changed)


def test_the_content_of_the_model_counts_and_not_its_folder(job, rows, model, world, tmp_path):
    key = run_of(job, rows, model).key
    copy = shutil.copytree(world / "model", tmp_path / "copy")
    assert run_of(job, rows, lm.LanguageModel.from_pretrained(str(copy))).key == key
    (copy / "config.json").write_bytes((copy / "config.json").read_bytes() + b"\n")
    assert run_of(job, rows, lm.LanguageModel.from_pretrained(str(copy))).key != key


def test_the_content_of_a_methods_own_model_counts(job, rows, model, world, tmp_path):
    name = "encoder_probe"
    folder = shutil.copytree(world / "model", tmp_path / "other")
    job = choosing(job, **{name: {"encoder": str(folder)}})
    key = run_of(job, rows, model, name).key
    lm.find_fingerprint.cache_clear()
    assert run_of(job, rows, model, name).key == key
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 4]))
    lm.find_fingerprint.cache_clear()
    assert run_of(job, rows, model, name).key != key


def test_the_platform_counts_only_where_states_depend_on_it(job, rows, model, monkeypatch):
    """CPUs compute bfloat16 models in float32, so that their records must not pass for a GPU's."""
    jobs = [dataclasses.replace(job, dtype=dtype) for dtype in ("float32", "bfloat16")]
    runs = [run_of(changed, rows, inputs.read_model(model.name, changed)) for changed in jobs]
    keys = [run.key for run in runs]
    monkeypatch.setattr(parallel, "platform", lambda: "gpu")
    other_keys = [dataclasses.replace(run).key for run in runs]  # Copies: a run computes its key once.
    assert [key == other for key, other in zip(keys, other_keys, strict=True)] == [True, False]


def test_what_changes_no_result_changes_no_key(job, rows, model):
    """Batch and mesh, but for `mesh.model` in deterministic mode, in which states are promised to be bitwise equal."""
    job, mesh = dataclasses.replace(job, deterministic=True), dataclasses.replace(job.mesh, data=1)
    kept = [dataclasses.replace(job, **change) for change in ({}, {"batch": 512}, {"mesh": mesh})]
    assert len({run_of(changed, rows, model).key for changed in kept}) == 1
    one = inputs.read_model(model.name, job)
    two = lm.LanguageModel.from_pretrained(
        model.name, deterministic=True, mesh=lambda config: AbstractMesh((1, 2), parallel.AXES)
    )
    usual = run_of(job, rows, one)
    assert dataclasses.replace(usual, model=two).key != usual.key, "sums are in another order"
    with pytest.raises(errors.UserError, match="--mesh.model=0"):
        dataclasses.replace(job, mesh=dataclasses.replace(job.mesh, model=0))
