"""States over every split of the devices into data and model shards, against one CPU."""

import functools
from collections.abc import Iterator

import jax

from knnprompt_jax import parallel
from knnprompt_jax.check import findings
from knnprompt_jax.check import inputs as inputs_lib
from knnprompt_jax.models import sharding


def run(inputs: inputs_lib.Inputs) -> Iterator[findings.Finding]:
    """Read all prompts with the tiny model on every mesh that uses all devices and splits the model."""
    num_devices = jax.device_count()
    if num_devices == 1:
        yield findings.Skipped("splits of several devices", "there is one device")
        return
    for model in sharding.model_axes(inputs.reference.config, num_devices):
        data = num_devices // model
        yield findings.compare(
            f"{data} data × {model} model, states against one CPU, nats",
            functools.partial(_deviation, inputs, data, model),
            inputs_lib.NATS,
            inputs_lib.NATS_REASON,
        )


def _deviation(inputs: inputs_lib.Inputs, data: int, model: int) -> float:
    split = inputs.model(inputs_lib.TINY, parallel.make_mesh(data, model))
    return inputs_lib.largest(inputs_lib.log_probabilities(split, inputs.prompts(split)) - inputs.reference_NV)


CHECKS = (findings.Check("meshes", run),)
