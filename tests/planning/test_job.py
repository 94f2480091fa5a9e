"""A plan from its settings: rows, the recommended mesh, the roofline, the text and the JSON file."""

import dataclasses
import json

import pytest

from knnprompt_jax import errors
from knnprompt_jax.lm import memory
from knnprompt_jax.models import hub
from knnprompt_jax.planning import compiled, job, report, settings, targets, workload

OPTIONS = {"model": "tiny", "task": "demo", "topology": "cpu:4", "shots": 5, "demo_shots": 2, "compile": False}
NEED = memory.Need(weights=7 * 2**30, prefix=2**28, working=2**29)


@pytest.fixture(scope="module")
def plan() -> job.JobPlan:
    return job.run(settings.PlanSettings(**{**OPTIONS, "topology": "h100:4", "queries": 11, "anchors": 1000}))


def row(device: str = "v5e", **changes) -> job.MeshPlan:
    values = {"dtype": "bfloat16", "data": 4, "model": 2, "steps": 5, "anchors": 1000, "queries": 250, "need": NEED}
    values |= {"store": 2**20, "searching": 2**20, "programs": {}}
    values |= {name: job.Work(197e12, 7 * 2**30) for name in ("step", "prefix", "search")}
    return job.MeshPlan(targets.DEVICES[device], **{**values, **changes})


def test_every_mesh_that_divides_is_a_row(plan):
    assert [(each.data, each.model) for each in plan.rows] == [(4, 1), (2, 2), (1, 4)]
    weights = [each.need.weights for each in plan.rows]
    assert weights == sorted(weights, reverse=True) and plan.recommended is plan.rows[0]
    assert [each.step.collective_bytes > 0 for each in plan.rows] == [False, True, True]


def test_a_plan_says_that_nothing_was_run_and_what_fits(plan, tmp_path):
    text = report.render(plan)
    assert text.startswith("ESTIMATED, NOTHING WAS RUN: tiny, float32, on 4 × h100 (h100:4)\n")
    assert "1,000 anchors" in text and "Recommended: mesh.model=1 (mesh.data=4), the smallest that fits." in text
    assert "ms/step" in text and "Times are a roofline, a lower bound" in text and "by arithmetic" in text
    record = json.loads(report.write(tmp_path, plan).read_text())
    assert record["estimated"] and record["settings"]["queries"] == 11 and record["rows"][0]["fits"]


def test_a_cpu_has_memory_and_no_times():
    planned = job.run(settings.PlanSettings(**OPTIONS, mesh=settings.PlannedMesh(model=2)))
    assert [each.model for each in planned.rows] == [2] and planned.rows[0].anchors_per_second is None
    assert "ms/step" not in report.render(planned)


def test_more_anchors_take_as_many_more_steps():
    subject = workload.describe("tiny")
    work = workload.make(settings.PlanSettings(**OPTIONS), subject)
    count = work.prompts.num_prompts
    (few, _), (many, steps) = (workload.pack(work, times * count, 256, 1) for times in (1, 60))
    assert few.width == many.width == 128 and many.rows <= 2
    rows = workload.pack(work, count, 10**9, 1)[0].rows
    assert 60 * rows - 2 < steps * many.rows <= 60 * rows + 2 * 60


def test_a_time_is_the_longest_of_operations_bytes_and_collectives():
    planned = row()
    assert planned.step_seconds == 1 and planned.anchors_per_second == pytest.approx(1000 / (1 + 5))
    assert planned.job_seconds == pytest.approx(6 * 1.25 + 6)  # The search is in float32: six products.
    assert row(dtype="float32").step_seconds == pytest.approx(6)
    assert row(step=job.Work(1, 3 * 0.82e12)).step_seconds == pytest.approx(3)
    assert row(step=job.Work(1, 1, 2 * 90e9)).step_seconds == pytest.approx(2)
    assert row("cpu").job_seconds is None


@pytest.mark.parametrize(
    ("peak", "error", "fits", "is_out_of_memory"),
    [
        (15 * 2**30, "", True, False),
        (16 * 2**30, "", False, True),
        (0, "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 17.62G of 15.75G hbm.", False, True),
        (0, "INTERNAL: the compiler stopped", False, False),
    ],
)
def test_out_of_memory_is_a_row(peak, error, fits, is_out_of_memory):
    planned = row(programs={"suffixes": compiled.Memory(peak=peak, error=error)})
    assert (planned.fits, planned.is_out_of_memory) == (fits, is_out_of_memory)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topology": "v5e:9x9"}, "choose from v4:2x2x1"),
        ({"mesh": settings.PlannedMesh(model=3)}, "mesh.model=3: cpu:4 has 4 devices; .* can be 1, 2, 4"),
        ({"tokenizer": "nowhere"}, "nowhere"),
        ({"model": "gpt5-xl/none.gguf"}, "no such file"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(errors.UserError, match=message):
        job.run(settings.PlanSettings(**{**OPTIONS, **options}))


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
