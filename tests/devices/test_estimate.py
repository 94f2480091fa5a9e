"""A dry run from its settings: devices, rows, the recommended mesh, the roofline."""

import json
import types

import jax
import pytest

from knnprompt_jax.cli import command_settings as settings_lib
from knnprompt_jax.common import errors
from knnprompt_jax.devices import estimate, host_speed
from tests import shell

OPTIONS = {"dry_run": True, "model": "tiny", "task": "demo", "topology": "cpu:4", "shots": 5, "demo_shots": 2}
LARGE = {"model": "facebook/opt-30b", "dtype": "bfloat16"}


def run(**options):
    return estimate.run(settings_lib.BenchmarkSettings(**OPTIONS | options))


def test_every_mesh_that_divides_is_a_row(tmp_path, monkeypatch):
    monkeypatch.setattr(host_speed, "measure", lambda *given: host_speed.HostSpeed(0.1, 0.2, 0.3, 0.5))
    given = {**OPTIONS, "topology": "h100:4", "queries": 11, "anchors": 1000, "output": tmp_path}
    options = " ".join(f"--{name}={value}" for name, value in given.items())
    assert "ms per step" in shell.run(f"python experiments/benchmark.py {options}")
    estimated = json.loads(next(tmp_path.iterdir()).read_text())
    rows = estimated["meshes"]
    assert [(row["data"], row["model"]) for row in rows] == [(4, 1), (2, 2), (1, 4)]
    weights = [row["weights"] for row in rows]
    assert weights == sorted(weights, reverse=True)
    best = min(rows, key=lambda row: row["job_seconds"])
    assert estimated["recommended"] == f"mesh.model={best['model']} (mesh.data={best['data']}), the fastest that fits"
    assert [row["mib_sent_per_step"] > 0 for row in rows] == [False, True, True]
    for row in rows:
        assert (row["host_prompts_per_second"], row["bottleneck"]) == (2, "host")
        reading = 1000 / row["anchors_per_second"]
        assert row["ms_per_step"] / 1000 < reading < row["job_seconds"] < reading * 1.1
        assert row["tera_operations"] * 1e12 / estimate.DEVICES["h100"].peak_float32 <= row["job_seconds"]


def test_without_a_topology_the_devices_are_this_machine_s():
    """A CPU has memory and operations, and no times."""
    found = run(topology=None)
    assert found["devices"] == f"cpu:{jax.device_count()}"
    assert found["meshes"][0]["data"] == jax.device_count()
    assert found["meshes"][0]["tera_operations"] > 0 and "job_seconds" not in found["meshes"][0]
    assert found["host_stages"][-1]["prompts_per_second"] > 0
    assert "the smallest that fits" in found["recommended"]


def test_a_model_that_is_too_large_has_no_mesh():
    found = run(model="facebook/opt-30b", topology="v5e:2x2")
    assert {row["fits"] for row in found["meshes"]} == {"out of memory"}
    assert found["recommended"] == "none: facebook/opt-30b needs more memory than v5e:2x2 has"


def test_the_published_numbers_of_opt_30b():
    """Weights per device are exact: 30 billion parameters of two bytes, split over 8 devices."""
    whole = run(**LARGE, topology="v5e:2x4", anchors=1_048_576)["meshes"][-1]
    assert whole["fits"] == "yes"
    assert whole["weights"] == pytest.approx(7.01, abs=0.005)
    assert whole["read_per_host"] == 8 * whole["weights"] == whole["host_memory"]  # The states take less.
    assert whole["load_seconds_at_1_gb_per_second"] == pytest.approx(8 * 7.01 * 1.0737, rel=0.001)
    # While the store is made, a whole bfloat16 head is beside the weights and the store's float32 head.
    assert whole["peak"] - whole["weights"] - whole["store"] == pytest.approx(2 * 50272 * 7168 / 2**30)


def test_a_time_is_the_longest_of_operations_bytes_and_collectives():
    device = estimate.DEVICES["v5e"]
    assert estimate.roofline(device, "bfloat16", 197e12, 0.8e12) == 1
    assert estimate.roofline(device, "float32", 197e12, 0.8e12) == pytest.approx(6)  # Six products.
    assert estimate.roofline(device, "bfloat16", 1, 3 * 0.82e12) == pytest.approx(3)
    assert estimate.roofline(device, "bfloat16", 1, 1, 2 * 90e9) == pytest.approx(2)


@pytest.mark.parametrize("options", [{"topology": "v5e:4x4"}, {"dry_run": True, "repetitions": 9}])
def test_options_without_effect_are_refused(options):
    with pytest.raises(errors.UserError, match="has no effect with"):
        settings_lib.BenchmarkSettings(**options)


NAMES = {"v5p:2x2x4": ("tpu", 16, 4), "v5e:2x4": ("tpu", 8, 1), "v5e:4x4": ("tpu", 16, 4), "h100:3": ("cuda", 3, 1)}
NAMES |= {"h100-pcie:2": ("cuda", 2, 1), "h100:8": ("cuda", 8, 1), "cpu:5": ("cpu", 5, 1), "cpu:64": ("cpu", 64, 1)}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_gives_the_kind_and_the_number_of_devices(name):
    """A slice of more than eight chips has a host for each four."""
    topology = estimate.find_topology(name)
    assert (topology.device.platform, topology.size, topology.hosts) == NAMES[name]


@pytest.mark.parametrize("name", ["v5e", "v5e:3x5", "h100:", "h100:0", "h100:2x4", "h100:16", "cpu:x", "b200:8"])
def test_an_unknown_name_lists_all(name):
    with pytest.raises(errors.UserError, match="--topology=.*: unknown devices; choose from v4:2x2x1.*h100:8"):
        estimate.find_topology(name)


def test_this_machine_s_devices_are_found_by_their_kind(monkeypatch):
    device = types.SimpleNamespace(device_kind="TPU v5 lite", memory_stats=lambda: {"bytes_limit": 13 * 2**30})
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    monkeypatch.setattr(jax, "device_count", lambda: 7)
    found = estimate.find_topology(None)
    assert (found.name, found.device.peak, found.device.gib) == ("v5e:7", 197e12, 13)
    device.device_kind = "TPU v99"
    with pytest.raises(errors.UserError, match="TPU v99: unknown devices; choose from"):
        estimate.find_topology(None)
