"""The speed of the host's stages, and the comparison with the devices'. No test looks at how fast they are."""

import time

import pytest

from knnprompt_jax.cli import command_settings as settings_lib
from knnprompt_jax.devices import host_speed, workload
from knnprompt_jax.inference.prompts import packing

SETTINGS = settings_lib.BenchmarkSettings(model="tiny", shots=20, demo_shots=1)


def test_each_stage_is_measured_with_prompts_of_its_own(monkeypatch):
    """A slow packing makes its own stage and the stream slow; remembered blocks would make building free."""
    work = workload.build(SETTINGS, workload.describe("tiny"), num_anchors=3)
    fast = host_speed.measure(work, 512)
    assert 0 < fast.keys < fast.build
    pack = packing.pack
    monkeypatch.setattr(packing, "pack", lambda *arguments: time.sleep(0.5) or pack(*arguments))
    slow = host_speed.measure(work, 512, shards=2)
    num_prompts = work.build(0).num_prompts
    assert num_prompts > work.prompts.num_prompts == 3
    assert slow.pack * num_prompts >= 0.5 and slow.whole * num_prompts >= 0.5 > slow.build * num_prompts
    assert slow.table()[-1]["prompts_per_second"] == pytest.approx(slow.prompts_per_second())


def test_hosts_share_only_the_packing():
    speed = host_speed.HostSpeed(build=0.3, keys=0.1, pack=0.4, whole=0.6)
    assert speed.prompts_per_second() == pytest.approx(1 / 0.6)
    assert speed.prompts_per_second(hosts=2) == pytest.approx(1 / 0.4)
    assert speed.prompts_per_second(hosts=64) == pytest.approx(1 / 0.4)
    assert (speed.bottleneck(2), speed.bottleneck(2, hosts=2)) == ("host", "devices")
