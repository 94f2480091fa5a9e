"""A dry run from its settings: rows, the recommended mesh, the roofline, the text and the JSON file."""

import json
import re

import jax
import pytest

from knnprompt_jax import errors
from knnprompt_jax.benchmark import devices, dry_run, report
from knnprompt_jax.settings import benchmark as settings

OPTIONS = {"dry_run": True, "model": "tiny", "task": "demo", "topology": "cpu:4", "shots": 5, "demo_shots": 2}
GPUS = {**OPTIONS, "topology": "h100:4", "queries": 11, "anchors": 1000}


@pytest.fixture(scope="module")
def estimated() -> dict:
    return dry_run.run(settings.BenchmarkSettings(**GPUS))


def test_every_mesh_that_divides_is_a_row(estimated):
    rows = estimated["meshes"]
    assert [(row["data"], row["model"]) for row in rows] == [(4, 1), (2, 2), (1, 4)]
    weights = [row["weights"] for row in rows]
    assert weights == sorted(weights, reverse=True)
    best = min(rows, key=lambda row: row["job_seconds"])
    assert estimated["recommended"] == f"mesh.model={best['model']} (mesh.data={best['data']}), the fastest that fits"
    assert [row["mib_sent_per_step"] > 0 for row in rows] == [False, True, True]
    for row in rows:
        reading = 1000 / row["anchors_per_second"]
        assert row["ms_per_step"] / 1000 < reading < row["job_seconds"] < reading * 1.1
        assert row["tera_operations"] * 1e12 / devices.DEVICES["h100"].peak_float32 <= row["job_seconds"]


def test_a_dry_run_says_that_nothing_was_run_and_what_fits(estimated, tmp_path):
    text = report.render(estimated)
    assert re.search("ESTIMATED +nothing was run", text)
    assert re.search("ms per step +mib sent per step", text)
    assert re.search("times +a roofline, a lower bound", text)
    assert re.search("working memory +calculated", text)
    own = settings.BenchmarkSettings(**GPUS)
    record = json.loads(report.write(str(tmp_path), "dry_run", own, estimated).read_text())
    assert record["settings"]["queries"] == 11
    assert record["meshes"] == estimated["meshes"]
    assert "jax" in record["versions"]


@pytest.mark.parametrize(
    ("mesh", "expected"), [({"data": 2}, [(2, 2)]), ({"data": 1, "model": 4}, [(1, 4)]), ({"data": 4}, [(4, 1)])]
)
def test_a_given_axis_leaves_the_meshes_that_have_it(mesh, expected):
    own = settings.BenchmarkSettings(**OPTIONS, mesh=settings.BenchmarkMesh(**mesh))
    assert [(row["data"], row["model"]) for row in dry_run.run(own)["meshes"]] == expected


def test_a_cpu_has_memory_and_operations_and_no_times():
    found = dry_run.run(settings.BenchmarkSettings(**OPTIONS, mesh=settings.BenchmarkMesh(model=2)))
    assert [row["model"] for row in found["meshes"]] == [2]
    assert found["meshes"][0]["tera_operations"] > 0
    assert "job_seconds" not in found["meshes"][0]
    assert "times" not in found
    assert found["recommended"] == "mesh.model=2 (mesh.data=2), the smallest that fits"


def test_without_a_topology_the_devices_are_this_machine_s():
    found = dry_run.run(settings.BenchmarkSettings(**OPTIONS | {"topology": None}))
    assert found["devices"] == f"cpu:{jax.device_count()}"
    assert found["meshes"][0]["data"] == jax.device_count()


def test_a_model_that_is_too_large_has_no_mesh():
    own = settings.BenchmarkSettings(**OPTIONS | {"model": "facebook/opt-30b", "topology": "v5e:2x2"})
    found = dry_run.run(own)
    assert {row["fits"] for row in found["meshes"]} == {"out of memory"}
    assert found["recommended"] == "none: facebook/opt-30b needs more memory than v5e:2x2 has"


def test_the_published_numbers_of_opt_30b():
    """Weights per device are exact: 30 billion parameters of two bytes, split over 8 devices."""
    own = settings.BenchmarkSettings(
        **OPTIONS | {"model": "facebook/opt-30b", "topology": "v5e:2x4", "dtype": "bfloat16", "anchors": 1_048_576}
    )
    found = dry_run.run(own)
    assert found["recommended"] == "mesh.model=8 (mesh.data=1), the fastest that fits"
    whole = found["meshes"][-1]
    assert whole["weights"] == pytest.approx(7.01, abs=0.005)
    # While the store is made, a whole bfloat16 head is beside the weights and the store's float32 head.
    assert whole["peak"] - whole["weights"] - whole["store"] == pytest.approx(2 * 50272 * 7168 / 2**30)


def test_the_recommended_mesh_is_the_fastest():
    """A job of few anchors mostly reads the prefix, which `model` divides and every data shard repeats."""
    own = settings.BenchmarkSettings(
        **OPTIONS | {"model": "facebook/opt-30b", "topology": "h100:8", "dtype": "bfloat16", "anchors": 256}
    )
    found = dry_run.run(own)
    fitting = {row["model"]: row["job_seconds"] for row in found["meshes"] if row["fits"] == "yes"}
    assert min(fitting) < 8 and min(fitting.values()) == fitting[8]
    assert found["recommended"] == "mesh.model=8 (mesh.data=1), the fastest that fits"


@pytest.mark.parametrize(("demo_shots", "fits"), [({}, True), ({"demo_shots": 16}, False)])
def test_demonstrations_fit_unless_more_are_given(demo_shots, fits, caplog):
    options = {name: value for name, value in OPTIONS.items() if name not in ("shots", "demo_shots")}
    found = dry_run.run(settings.BenchmarkSettings(**options, **demo_shots))
    assert (found["truncated"] == 0) == ("longer than the context" not in caplog.text) == fits
    assert (found["prefix_tokens"] > 0) == fits


def test_a_time_is_the_longest_of_operations_bytes_and_collectives():
    device = devices.DEVICES["v5e"]
    assert dry_run.roofline(device, "bfloat16", 197e12, 0.8e12) == 1
    assert dry_run.roofline(device, "float32", 197e12, 0.8e12) == pytest.approx(6)  # Six products.
    assert dry_run.roofline(device, "bfloat16", 1, 3 * 0.82e12) == pytest.approx(3)
    assert dry_run.roofline(device, "bfloat16", 1, 1, 2 * 90e9) == pytest.approx(2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"mesh": settings.BenchmarkMesh(model=3)},
            "mesh.model=3: cpu:4 has 4 devices; .* can be 1, 2, 4",
        ),
        ({"tokenizer": "nowhere"}, "nowhere"),
        ({"model": "gpt5-xl/none.gguf"}, "no such file"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(errors.UserError, match=message):
        dry_run.run(settings.BenchmarkSettings(**{**OPTIONS, **options}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topology": "v5e:4x4"}, "--topology: has no effect without --dry_run; leave it out"),
        ({"dry_run": True, "repetitions": 9}, "--repetitions: has no effect with --dry_run; leave it out"),
    ],
)
def test_options_without_effect_are_refused(options, message):
    with pytest.raises(errors.UserError, match=message):
        settings.BenchmarkSettings(**options)
