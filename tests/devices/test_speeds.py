"""Speeds and their workloads: random weights, and the tokenizer that counts tokens. No test looks at speeds."""

import dataclasses
import json

import numpy as np
import pytest

from knnprompt_jax.cli import command_settings as settings_lib
from knnprompt_jax.common import errors
from knnprompt_jax.devices import check_runner, machine, speeds, workload
from knnprompt_jax.models import hub, registry
from tests import shell

SMALL = {"model": "tiny", "batch": 256, "anchors": 23, "shots": 20, "demo_shots": 1, "repetitions": 2}


def test_a_benchmark_writes_its_record(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_SIDE_ON_CPU", 64)
    options = " ".join(f"--{name}={value}" for name, value in SMALL.items())
    assert "anchors per second" in shell.run(f"python experiments/benchmark.py {options} --output={tmp_path}")
    [path] = tmp_path.iterdir()
    found = json.loads(path.read_text())
    assert {"command", "date", "jax", "host"} <= set(found)
    assert (found["anchors"], found["compilations"]) == (23, 2)  # The programs of the prefix and of the suffixes.
    assert all(found[name] > 0 for name in ("compile_seconds", "share_of_peak", "anchors_per_second"))
    names = ["render and tokenize", "keys", "pack", "all, as a stream"]
    assert [row["stage_of_the_host"] for row in found["host_stages"]] == names
    slower = "host" if found["host_prompts_per_second"] < found["anchors_per_second"] else "devices"
    assert found["bottleneck"] == slower


def test_a_published_shape_has_random_weights(monkeypatch, tmp_path):
    """`check` measures it, and no test looks at speeds."""
    small = {"n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 1009, "n_positions": 256}
    monkeypatch.setitem(registry.PUBLISHED, "ours/small", {**registry.PUBLISHED["gpt2"], **small})
    monkeypatch.setattr(machine, "_SIDE_ON_CPU", 64)
    monkeypatch.setattr(speeds, "_ANCHORS_ON_CPUS", 23)
    monkeypatch.setattr(check_runner, "SHAPES_ON_CPUS", ("small",))
    monkeypatch.setattr(check_runner, "CORRECTNESS", {})
    [row] = check_runner.run(settings_lib.CheckSettings(), tmp_path / "record.json")["speeds"]
    assert (row["model"], row["anchors"], row["attention_kernel"]) == ("small", 23, "no")
    assert row["anchors_per_second"] > 0 and row["share_of_peak"] > 0
    own = settings_lib.BenchmarkSettings(model="small", dtype="bfloat16")
    model = workload.build_random(own, workload.describe("small"), 3).model
    kernel = np.asarray(model.execution.decoder.blocks.mlp.up_kernel[...], np.float32)
    assert model.dtype == "bfloat16" and kernel.std() == pytest.approx(0.02, rel=0.1)
    assert not np.array_equal(kernel[0], kernel[1])


def test_smollm2_counts_tokens_if_the_model_s_tokenizer_is_not_available(monkeypatch):
    resolve = hub.resolve

    def offline(name, *arguments, **options):
        if name != "smollm2":
            raise errors.UserError("offline")
        return resolve(name)

    monkeypatch.setattr(hub, "resolve", offline)
    subject = workload.describe("opt-30b")
    assert subject == dataclasses.replace(workload.describe("facebook/opt-30b"), name="opt-30b")
    work = workload.build(settings_lib.BenchmarkSettings(**SMALL | {"model": "opt-30b"}), subject, num_anchors=3)
    assert (work.tokenizer_name, work.prompts.num_prompts, subject.config.num_layers) == ("smollm2", 3, 48)
