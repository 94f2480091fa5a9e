"""Each anchor classified by all others: their states are there, so that no pass of the model is needed."""

import dataclasses

import jax
import jax.numpy as jnp

from knnprompt_jax import errors
from knnprompt_jax import lm as lm_lib
from knnprompt_jax.store import factored, kernel, search
from knnprompt_jax.store import store as store_lib


def states_of(store: store_lib.Store) -> lm_lib.States:
    """The states of all anchors, which a factored store holds as seen from its centre; raises UserError on a dense one."""
    if not isinstance(store.codec, factored.Codec):
        raise errors.UserError(f"a {store.codec.kind} store keeps no states of its anchors: fit with kind='factored'")
    keys, frame = store.unpadded.keys, store.codec.frame
    hidden_NE = jnp.asarray(keys.hidden_NE).astype(jnp.float32)
    log_z_N = jnp.asarray(keys.log_z_N) + frame.log_z + jnp.matmul(hidden_NE, frame.shift_E, precision="highest")
    return lm_lib.States(hidden_NE + frame.centre_E, log_z_N, store.codec.deterministic)


def neighbours(
    store: store_lib.Store, options: search.SearchOptions, states: lm_lib.States | None = None
) -> kernel.Neighbours:
    """The k nearest anchors of each anchor, itself left out; `states` are the anchors', if they are at hand.

    k + 1 are searched for. Where an anchor is not among its own nearest, because so many others are equal to it,
    the k nearest of all are those of the others.

    Raises:
        UserError: there are not k others, or the store keeps no states.
    """
    if options.k >= len(store):
        raise errors.UserError(f"k={options.k}: choose from 1 to {len(store) - 1}, the number of other anchors")
    states = states_of(store) if states is None else states
    nearest = store.search(states, dataclasses.replace(options, k=options.k + 1))
    itself_Nk = nearest.indices_Qk == jnp.arange(len(store))[:, None]
    # Places of the others come first, in their order; then that of the anchor itself.
    places_Nk = jnp.argsort(itself_Nk, -1, stable=True)[:, : options.k]
    return jax.tree.map(lambda array: jnp.take_along_axis(array, places_Nk, -1), nearest)
