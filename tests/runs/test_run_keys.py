"""Keys of runs: everything that can change a result changes the key, and nothing else does."""

import dataclasses
import shutil

import pytest

import knnprompt_jax as kp
from knnprompt_jax import errors
from knnprompt_jax import options as options_lib
from knnprompt_jax.methods import method, registry
from knnprompt_jax.models.weights import checkpoints
from knnprompt_jax.runs import comparison, fitting, inputs
from knnprompt_jax.runs import model as model_lib
from knnprompt_jax.runs import run as run_lib
from knnprompt_jax.settings import commands, shared
from knnprompt_jax.tasks import splits
from tests.runs.conftest import choosing

# Options that change no result by themselves. Some act through rows, task or model, which are compared by content.
THROUGH_CONTENT = (
    "model task train_file eval_file data_dir hub restore_dropped drop_duplicates split encoding empty on_bad context"
)
NEUTRAL = (
    f"{THROUGH_CONTENT} label_column text_columns store output cache_gb resume methods options distributed".split()
)


@pytest.fixture(scope="module")
def model(world):
    return model_lib.describe(str(world / "model"))


@pytest.fixture(scope="module")
def rows(world):
    return inputs.load_rows(shared.ComparisonSettings(task="mr", data_dir=str(world / "data")), "mr")


def run_of(job, rows, model, name="knn", seed=1):
    model = dataclasses.replace(model, execution=inputs.read_execution(job))
    split = splits.draw(rows.train, rows.task, shots=job.shots, demo_shots=job.demo_shots, seed=seed)
    how = model.tokenize, job.label_token, job.truncation
    problem = method.Problem(rows.task, split, rows.evaluation, *how)
    return run_lib.Run(name, registry.get(name), getattr(job.options, name), problem, model, job.datastore)


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
        if field.name in NEUTRAL:
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
    assert {"dtype", "deterministic", "batch", "mesh.model", "datastore.key_dtype", "shots", "truncation"} <= {*keys}


def test_every_option_of_every_method_changes_the_key(job, rows, model, world, monkeypatch):
    monkeypatch.setattr(model_lib, "find", lambda name, weights: world / "model")
    for name, declared in registry.METHODS.items():
        keys = {"": run_of(job, rows, model, name).key}
        for option, default, metadata in options_lib.listed(declared.settings):
            if option in declared.neutral_options:
                continue
            if isinstance(default, str) and not metadata["choices"] or isinstance(default, tuple):
                continue  # Names of models and lists, which other tests change.
            changed = choosing(job, **{name: {option: other_value(default, metadata)}})
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
    assert run_of(job, rows, model_lib.describe(str(copy))).key == key
    keys = {key}
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        path = shutil.copytree(world / "model", tmp_path / name) / name
        content = path.read_bytes()
        middle = len(content) // 2  # A sample of bytes would miss a single changed weight.
        changed = content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]
        path.write_bytes(content.replace(b"\n", b" ", 1) if path.suffix == ".json" else changed)
        keys.add(run_of(job, rows, model_lib.describe(str(path.parent))).key)
    assert len(keys) == 4


@pytest.mark.parametrize(("name", "option"), [("prompt_compose_sbert", "retriever"), ("fine_tuning_bert", "model")])
def test_the_content_of_a_methods_own_model_counts(name, option, job, rows, model, world, tmp_path):
    folder = shutil.copytree(world / "model", tmp_path / "other")
    job = choosing(job, **{name: {option: str(folder)}})
    key = run_of(job, rows, model, name).key
    assert run_of(job, rows, model, name).key == key
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 4]))
    assert run_of(job, rows, model, name).key != key


def test_what_changes_no_result_changes_no_key(job, rows, model):
    """Checkpoints of fine-tuning, and batch and `mesh.data` in deterministic mode."""
    kept = [choosing(job, fine_tuning=change) for change in ({}, {"checkpoints": "x"}, {"checkpoint_every": 7})]
    assert len({run_of(changed, rows, model, "fine_tuning").key for changed in kept}) == 1
    job, mesh = dataclasses.replace(job, deterministic=True), dataclasses.replace(job.mesh, data=1)
    kept = [dataclasses.replace(job, **change) for change in ({}, {"batch": 512}, {"mesh": mesh})]
    assert len({run_of(changed, rows, model).key for changed in kept}) == 1
    split = dataclasses.replace(job, mesh=dataclasses.replace(job.mesh, model=2))
    assert run_of(split, rows, model).key != run_of(job, rows, model).key, "sums are in another order"
    with pytest.raises(errors.UserError, match="--mesh.model=0: with --deterministic, give the number"):
        run_of(dataclasses.replace(job, mesh=dataclasses.replace(job.mesh, model=0)), rows, model)


@pytest.fixture
def store(job, tmp_path):
    """A saved classifier of the paper's rule, on the rows of the job."""
    folder = str(tmp_path / "saved")
    given = {"model": job.model, "task": "mr", "data_dir": job.data_dir, "shots": 9, "demo_shots": 2, "rule": "knn"}
    fitting.run(commands.FitSettings(**given, store=folder))
    return folder


def of_store(job, store, **changes):
    return dataclasses.replace(
        job, **{"store": store, "model": None, "shots": None, "demo_shots": -1, "seeds": None, **changes}
    )


def test_a_changed_classifier_is_compared_anew(job, store, tmp_path):
    job = of_store(job, store, methods="knn", resume=True)
    [first] = comparison.run(job)
    anchors = kp.load(store).anchors_
    lines = "".join(f"{number},{1 - int(row.label)}\n" for number, row in anchors.items())
    (tmp_path / "labels.csv").write_text(f"id,label\n{lines}")
    fitting.run(commands.FitSettings(store=store, relabel=str(tmp_path / "labels.csv")))
    [second] = comparison.run(job)
    assert second.key != first.key and second.predicted != first.predicted
    assert [record.key for record in comparison.run(job)] == [second.key]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "bfloat16"}, "--dtype=bfloat16: .*saved was made with dtype=float32; leave it out or fit again"),
        ({"deterministic": True}, "--deterministic=True: .* was made with deterministic=False"),
        ({"model": "tiny"}, "another model"),
    ],
)
def test_options_that_differ_from_the_saved_classifier_are_refused(job, store, change, message, monkeypatch):
    monkeypatch.setattr(checkpoints, "load", None)
    with pytest.raises(errors.UserError, match=message):
        comparison.run(of_store(job, store, **change))


def test_an_output_inside_a_saved_classifier_is_refused(job, store, monkeypatch):
    monkeypatch.setattr(checkpoints, "load", None)
    with pytest.raises(errors.UserError, match="results: lies inside the saved classifier"):
        comparison.run(dataclasses.replace(job, output=f"{store}/results"))
