"""The deterministic mode: the bits of states and distances with other prompts, another order, and other data shards."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from knnprompt_jax import lm, parallel
from knnprompt_jax.check import findings
from knnprompt_jax.check import inputs as inputs_lib
from knnprompt_jax.store import StoreOptions
from knnprompt_jax.store import store as store_lib

_REASON = "the mode promises equal bits"
_SUBSET = range(5, 12)
_K = 5


def run(inputs: inputs_lib.Inputs) -> Iterator[findings.Finding]:
    """Count the prompts whose bits differ."""
    model = inputs.model(inputs_lib.TINY, inputs.device, deterministic=True)
    everything = inputs.prompts(model)
    states = inputs_lib.read(model, everything)
    subset_states = inputs_lib.read(model, inputs.prompts(model, _SUBSET))
    reverse = range(everything.num_prompts)[::-1]
    reversed_states = inputs_lib.read(model, inputs.prompts(model, reverse))
    yield _compare("states of 7 prompts alone", subset_states, _rows(states, _SUBSET))
    yield _compare("states in another order", reversed_states, _rows(states, reverse))
    if jax.device_count() == 1:
        yield findings.Skipped("states with other numbers of data shards", "there is one device")
    else:
        split = inputs.model(inputs_lib.TINY, parallel.make_mesh(), deterministic=True)
        name = f"states over {jax.device_count()} data shards"
        yield _compare(name, inputs_lib.read(split, inputs.prompts(split)), states)
    yield _compare("neighbours of one query alone", *_search(inputs, model, states))


def _search(inputs: inputs_lib.Inputs, model: lm.LanguageModel, states: lm.States) -> tuple[Any, Any]:
    """Return the neighbours of a query that is searched alone, and its neighbours in a search of all queries."""
    num_anchors = len(inputs.problem(model).split.anchors)
    anchors = _rows(states, range(num_anchors))
    queries = _rows(states, range(num_anchors, len(states)))
    classes = np.zeros(num_anchors, int)
    store = store_lib.build(StoreOptions(), "kl", model.head, jax.tree.map(jax.numpy.asarray, anchors), classes, ())
    near = store.search(jax.tree.map(jax.numpy.asarray, queries), _K)
    alone = store.search(jax.tree.map(jax.numpy.asarray, _rows(queries, range(3, 4))), _K)
    return alone, jax.tree.map(lambda array: array[3:4], near)


def _rows(states: lm.States, rows: range) -> lm.States:
    return jax.tree.map(lambda array: array[np.array(rows)], states)


def _compare(compared: str, found: Any, wanted: Any) -> findings.Comparison:
    """Count the rows in which some number has other bits."""
    differs = [
        (_bytes(ours) != _bytes(theirs)).any(-1)
        for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    ]
    return findings.Comparison(f"{compared}, prompts whose bits differ", float(np.any(differs, 0).sum()), 0, _REASON)


def _bytes(rows: Any) -> np.ndarray:
    """Return the bytes of each row."""
    array = np.ascontiguousarray(rows)
    return array.reshape(len(array), -1).view(np.uint8)


CHECKS = (findings.Check("deterministic mode", run),)
