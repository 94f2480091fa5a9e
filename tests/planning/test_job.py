"""A plan from its settings: rows, the recommended mesh, the roofline, the text and the JSON file."""

import dataclasses
import importlib.util
import json
import re
import types

import pytest
from jax.errors import JaxRuntimeError

from knnprompt_jax import errors
from knnprompt_jax.models import hub
from knnprompt_jax.planning import compiled, job, report, targets, workload
from knnprompt_jax.settings import planning as settings

OPTIONS = {"model": "tiny", "task": "demo", "topology": "cpu:4", "shots": 5, "demo_shots": 2, "compile": False}
UNKNOWN = ["v5e", "v5e:3x5", "h100:", "h100:0", "h100:2x4", "cpu:x", "b200:8"]


@pytest.fixture(scope="module")
def plan() -> dict:
    return job.run(settings.PlanSettings(**{**OPTIONS, "topology": "h100:4", "queries": 11, "anchors": 1000}))


def test_every_mesh_that_divides_is_a_row(plan):
    rows = plan["meshes"]
    assert [(row["data"], row["model"]) for row in rows] == [(4, 1), (2, 2), (1, 4)]
    weights = [row["weights"] for row in rows]
    assert weights == sorted(weights, reverse=True)
    assert plan["recommended"] == "mesh.model=1 (mesh.data=4), the smallest that fits"
    assert [row["mib_sent_per_step"] > 0 for row in rows] == [False, True, True]
    for row in rows:
        reading = 1000 / row["anchors_per_second"]
        assert row["ms_per_step"] / 1000 < reading < row["job_seconds"] < reading * 1.1


def test_a_plan_says_that_nothing_was_run_and_what_fits(plan, tmp_path):
    text = report.render(plan)
    assert re.search("ESTIMATED +nothing was run", text) and re.search("ms per step +mib sent per step", text)
    assert re.search("times +a roofline, a lower bound", text) and re.search("working memory +calculated", text)
    own = settings.PlanSettings(**{**OPTIONS, "queries": 11})
    record = json.loads(report.write(str(tmp_path), "plan", own, plan).read_text())
    assert record["settings"]["queries"] == 11 and record["meshes"] == plan["meshes"] and "jax" in record["versions"]


@pytest.mark.parametrize(
    ("mesh", "planned"), [({"data": 2}, [(2, 2)]), ({"data": 1, "model": 4}, [(1, 4)]), ({"data": 4}, [(4, 1)])]
)
def test_a_given_axis_leaves_the_meshes_that_have_it(mesh, planned):
    rows = job.run(settings.PlanSettings(**OPTIONS, mesh=settings.PlannedMesh(**mesh)))["meshes"]
    assert [(row["data"], row["model"]) for row in rows] == planned


def test_a_cpu_has_memory_and_no_times():
    planned = job.run(settings.PlanSettings(**OPTIONS, mesh=settings.PlannedMesh(model=2)))
    assert [row["model"] for row in planned["meshes"]] == [2] and "job_seconds" not in planned["meshes"][0]
    assert "ms per step" not in report.render(planned)


def test_a_time_is_the_longest_of_operations_bytes_and_collectives():
    device = targets.DEVICES["v5e"]
    assert job.roofline(device, "bfloat16", 197e12, 0.8e12) == 1
    assert job.roofline(device, "float32", 197e12, 0.8e12) == pytest.approx(6)  # Six products.
    assert job.roofline(device, "bfloat16", 1, 3 * 0.82e12) == pytest.approx(3)
    assert job.roofline(device, "bfloat16", 1, 1, 2 * 90e9) == pytest.approx(2)


@pytest.mark.parametrize(
    ("peak", "error", "fits"),
    [
        (15 * 2**30, "", "yes"),
        (16 * 2**30, "", "out of memory"),
        (0, "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 17.62G of 15.75G hbm.", "out of memory"),
        (0, "INTERNAL: the compiler\nstopped", "no program: INTERNAL: the compiler stopped"),
    ],
)
def test_what_the_compiler_says_is_a_row(monkeypatch, peak, error, fits):
    def pass_memory(*_):
        if error:
            raise JaxRuntimeError(error)
        return {"suffixes": types.SimpleNamespace(peak_memory_in_bytes=peak)}

    target = targets.get("v5e:2x2", compile=False)
    monkeypatch.setattr(targets, "get", lambda *_, **__: target)
    monkeypatch.setattr(targets.Target, "devices", lambda _: [])
    monkeypatch.setattr(compiled, "mesh_of", lambda *_: None)
    monkeypatch.setattr(compiled, "pass_memory", pass_memory)
    planned = job.run(settings.PlanSettings(**{**OPTIONS, "topology": "v5e:2x2", "compile": True}))
    assert {row["fits"] for row in planned["meshes"]} == {fits}
    assert ("needs more memory than v5e:2x2" in planned["recommended"]) == (fits == "out of memory")
    assert error or planned["meshes"][0]["peak"] == peak / 2**30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"topology": name}, "topology='.*': choose from v4:2x2x1.*h100:8") for name in UNKNOWN),
        ({"mesh": settings.PlannedMesh(model=3)}, "mesh.model=3: cpu:4 has 4 devices; .* can be 1, 2, 4"),
        ({"tokenizer": "nowhere"}, "nowhere"),
        ({"model": "gpt5-xl/none.gguf"}, "no such file"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(errors.UserError, match=message):
        job.run(settings.PlanSettings(**{**OPTIONS, **options}))


def test_a_missing_compiler_is_an_error_for_tpus_alone(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    assert targets.get("h100:2").size == 2 and targets.get("v5p:2x2x4", compile=False).size == 16
    with pytest.raises(errors.UserError, match=r"v5e:2x2.*pip install 'knnprompt_jax\[tpu\]'"):
        targets.get("v5e:2x2")


def test_smollm2_counts_tokens_if_the_model_s_tokenizer_is_not_available(monkeypatch):
    resolve = hub.resolve

    def offline(name, *arguments, **options):
        if name != "smollm2":
            raise errors.UserError("offline")
        return resolve(name)

    monkeypatch.setattr(hub, "resolve", offline)
    subject = workload.describe("opt-30b")
    assert subject == dataclasses.replace(workload.describe("facebook/opt-30b"), name="opt-30b")
    work = workload.make(settings.PlanSettings(**{**OPTIONS, "model": "opt-30b"}), subject, most=3)
    assert (work.tokenizer_name, work.prompts.num_prompts, subject.config.num_layers) == ("smollm2", 3, 48)
