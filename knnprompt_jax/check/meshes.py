"""States over every split of the devices into data and model shards, against one CPU."""

from collections.abc import Iterator

import jax

from knnprompt_jax import parallel
from knnprompt_jax.check import check
from knnprompt_jax.check import subject as subject_lib
from knnprompt_jax.models import sharding


def run(subject: subject_lib.Subject) -> Iterator[check.Finding]:
    """Read all prompts with the tiny model on every mesh that uses all devices and splits the model."""
    num_devices = jax.device_count()
    if num_devices == 1:
        yield check.Skipped("splits of several devices", "there is one device")
        return
    head_VE = subject_lib.head_rows(subject.reference)
    wanted_NV = subject_lib.log_probabilities(head_VE, subject.reference_states)
    for model in range(1, num_devices + 1):
        if num_devices % model or sharding.uneven(subject.reference.config, model):
            continue
        split = subject.model(subject_lib.TINY, parallel.make_mesh(num_devices // model, model))
        found = subject_lib.read(split, subject.prompts(split))
        deviation = subject_lib.largest(subject_lib.log_probabilities(head_VE, found) - wanted_NV)
        yield check.Comparison(
            f"{num_devices // model} data × {model} model, states against one CPU, nats",
            deviation,
            subject_lib.NATS,
            subject_lib.NATS_REASON,
        )


CHECKS = (check.Check("meshes", run),)
