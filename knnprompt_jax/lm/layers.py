"""For methods that look inside the model: a pass that keeps the states after every block."""

import time
from typing import Any

import jax
import numpy as np

from knnprompt_jax import parallel
from knnprompt_jax import progress as progress_lib
from knnprompt_jax.lm import language_model, programs
from knnprompt_jax.models import decoder
from knnprompt_jax.prompts import layout, packing


def states(
    model: language_model.LanguageModel, prompts: layout.Prompts, progress: progress_lib.Progress | None = None
) -> np.ndarray:
    """Hidden states [N, L, D] (float32) of N prompts' last tokens after each of L blocks, in the order asked for.

    Raises UserError as `LanguageModel.states`.
    """
    started = time.monotonic()
    shapes = packing.choose_shapes(prompts.groups, model.step_tokens, model.mesh.shape[parallel.DATA])
    calls: list[Any] = []
    slots = [np.zeros(0, int)]
    for group in prompts.groups:
        packed = model.execution.pack(group, shapes[bool(len(group.prefix_P))])
        slots.append(packed.slot_N + sum(call.shape[0] * call.shape[1] for call in calls))
        calls += model.execution.read(packed, progress, "layers", _read_layers)
    index = np.concatenate([group.index for group in prompts.groups])
    slot_N = np.concatenate(slots)[np.argsort(index)]
    rows = programs.select(calls, slot_N, parallel.by_rows(model.mesh, len(slot_N)))
    x_NLD = np.asarray(parallel.replicate(rows))
    model.statistics.seconds += time.monotonic() - started
    return x_NLD


def _read_layers(model: decoder.Decoder, mesh: jax.sharding.Mesh, *step: jax.Array, **options: Any) -> jax.Array:
    return model.read_layers(*step, **options)
