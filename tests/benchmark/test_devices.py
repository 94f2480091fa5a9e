"""The devices of a dry run, by name and as this machine has them."""

import types

import jax
import pytest

from knnprompt_jax import errors
from knnprompt_jax.benchmark import devices


@pytest.mark.parametrize(
    ("name", "platform", "size"),
    [
        ("v5e:4x4", "tpu", 16),
        ("v5p:2x2x4", "tpu", 16),
        ("h100:3", "cuda", 3),
        ("h100-pcie:2", "cuda", 2),
        ("cpu:5", "cpu", 5),
    ],
)
def test_a_name_gives_the_kind_and_the_number_of_devices(name, platform, size):
    topology = devices.named(name)
    assert (topology.device.platform, topology.size) == (platform, size)


@pytest.mark.parametrize("name", ["v5e", "v5e:3x5", "h100:", "h100:0", "h100:2x4", "cpu:x", "b200:8"])
def test_an_unknown_name_lists_all(name):
    with pytest.raises(errors.UserError, match="topology='.*': choose from v4:2x2x1.*h100:8"):
        devices.named(name)


def test_this_machine_s_devices_are_found_by_their_kind(monkeypatch):
    found = devices.existing()
    assert (found.device.platform, found.size) == ("cpu", jax.device_count())
    device = types.SimpleNamespace(device_kind="TPU v5 lite", memory_stats=lambda: {"bytes_limit": 13})
    monkeypatch.setattr(jax, "devices", lambda: [device] * 7)
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    monkeypatch.setattr(jax, "device_count", lambda: 7)
    found = devices.existing()
    assert (found.name, found.device.peak, found.device.memory) == ("v5e:7", 197e12, 13)
    device.device_kind = "TPU v99"
    with pytest.raises(errors.UserError, match="TPU v99: the speed of this device is unknown; choose --topology from"):
        devices.existing()
