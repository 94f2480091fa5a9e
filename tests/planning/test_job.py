"""A plan from its settings, with this machine's CPU as the device: what a user sees, and what is written."""

import dataclasses
import json

import pytest

from knnprompt_jax import errors
from knnprompt_jax.lm import memory
from knnprompt_jax.planning import compiler, job, programs, report, settings, targets, workload

OPTIONS = {"model": "tiny", "task": "demo", "topology": "cpu:4", "shots": 5, "demo_shots": 2}
NEED = memory.Need(weights=7 * 2**30, prefix=2**28, working=2**29)


@pytest.fixture(scope="module")
def plan() -> job.JobPlan:
    options = {**OPTIONS, "mesh": settings.PlannedMesh(model=2), "queries": 11, "anchors": 1000}
    return job.run(settings.PlanSettings(**options))


def row(peak: int, device: str = "v5e", error: str = "", **cycles: int) -> job.MeshPlan:
    collective = {"kind": "all-reduce", "axes": ["model"], "devices": 2, "nbytes": 9 * 10**9, "times": 1}
    figures = {
        name: compiler.Figures(name, error, peak=peak, operations=3e12, cycles=cycles, collectives=[collective])
        for name in job.COMPILED
    }
    return job.MeshPlan(targets.DEVICES[device], 4, 2, 5, 1000, 250, NEED, 2**20, figures)


def test_arguments_are_weights_prefix_and_tokens_to_the_byte(plan):
    (planned,) = plan.rows
    work = workload.make(plan.settings, plan.subject)
    shape = work.packed(2560, 2).shape
    tokens = 4 * (
        3 * shape.rows * shape.width + shape.reads
    )  # Steps of int32: tokens, stops, positions; and what is read.
    need = planned.pass_memory
    assert planned.figures[programs.SUFFIXES].arguments == need.weights + need.prefix + 4 * tokens + 4 + 4


def test_a_plan_says_that_nothing_was_run_and_what_fits(plan, tmp_path):
    text = report.render(plan)
    assert text.startswith("ESTIMATED, NOTHING WAS RUN: tiny, float32, on 4 × cpu (cpu:4)\n")
    assert "1,000 anchors" in text and "Recommended: mesh.model=2 (mesh.data=2), the smallest that fits." in text
    assert "search" in text and "all-reduce" in text and "reports memory, and no time" in text
    record = json.loads(report.write(tmp_path, plan).read_text())
    assert record["estimated"] and record["settings"]["queries"] == 11 and record["rows"][0]["fits"]
    assert {axis for each in plan.rows[0].figures[programs.SUFFIXES].collectives for axis in each["axes"]} == {"model"}


def test_without_compiling_every_mesh_that_divides_is_a_row():
    planned = job.run(settings.PlanSettings(**OPTIONS, compile=False))
    assert [(each.data, each.model) for each in planned.rows] == [(4, 1), (2, 2), (1, 4)]
    weights = [each.pass_memory.weights for each in planned.rows]
    assert weights == sorted(weights, reverse=True) and planned.recommended is planned.rows[0]
    assert "a step's time" not in report.render(planned)


def test_more_anchors_take_as_many_more_steps():
    planned = settings.PlanSettings(**OPTIONS)
    work = workload.make(planned, workload.subject(planned))
    few, many = (dataclasses.replace(work, anchors=times * work.anchors).packed(256, 1) for times in (1, 60))
    assert few.shape.width == many.shape.width == 128 and many.shape.rows <= 2
    rows = work.packed(10**9, 1).shape.rows
    assert 60 * rows - 2 < many.steps * many.shape.rows <= 60 * rows + 2 * 60


def test_seconds_are_cycles_and_collectives():
    estimated = row(2**30, mlp=15 * 10**8, norm=3 * 10**8)
    call = 1.0 + 0.2 + 2 * 9e9 * (1 / 2) / 90e9
    assert estimated.seconds(programs.SUFFIXES) == pytest.approx(call)
    assert estimated.step_seconds == pytest.approx(call / 4)
    assert estimated.anchors_per_second == pytest.approx(1000 / (call + 5 * call / 4))
    assert estimated.job_seconds == pytest.approx((call + 5 * call / 4) * 1.25 + call)
    assert estimated.share_of_peak == pytest.approx(3e12 / call / 197e12)
    assert row(2**30).job_seconds is None and row(2**30).anchors_per_second is None


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
    planned = row(peak, error=error)
    assert (planned.fits, planned.is_out_of_memory) == (fits, is_out_of_memory)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topology": "v5e:9x9"}, "choose from v4:2x2x1"),
        ({"mesh": settings.PlannedMesh(model=3)}, "mesh.model=3: of cpu:4's 4 devices .* can be 1, 2, 4"),
        ({"tokenizer": "nowhere"}, "nowhere"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(errors.UserError, match=message):
        job.run(settings.PlanSettings(**{**OPTIONS, **options}))


def test_a_compiler_that_dies_is_a_row(monkeypatch):
    monkeypatch.setattr(compiler.sys, "executable", "/bin/false")
    shape = {"prefix": 0, "width": 128, "rows": 1, "reads": 8}
    found = compiler.compile_all(compiler.Request("cpu:1", 1, 1, ("prefix",), {}, "float32", shape, {}))
    assert found["prefix"].error == "the compiler stopped: exit status 1" and not found["prefix"].is_out_of_memory


def test_token_counts_of_others_are_said_to_be(monkeypatch):
    monkeypatch.setattr(
        workload, "_load", lambda name, revision: {"gpt2": "theirs"}[name] if name == "gpt2" else _fail()
    )
    found = workload.subject(settings.PlanSettings(**{**OPTIONS, "model": "facebook/opt-30b"}))
    assert (found.tokens_of, found.tokenizer, found.config.num_layers) == ("gpt2", "theirs", 48)
    monkeypatch.setattr(workload, "_load", lambda name, revision: _fail())
    with pytest.raises(errors.UserError, match="neither the tokenizer of gpt2-xl nor that of gpt2"):
        workload.subject(settings.PlanSettings(**{**OPTIONS, "model": "gpt2-xl"}))


def _fail():
    raise errors.UserError("offline")
