"""States: the sufficient statistics of next-token distributions."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from flax import struct

from knnprompt_jax import parallel

Array = jax.Array


@struct.dataclass
class States:
    """The head's input `hidden_NE` and the log-partition `log_z_N` (nats) of N prompts, both float32.

    log p(v) = w_v · h − log Z, where w_v are the rows of the head (`models.head`). A pass leaves its rows split over
    the devices of the mesh; a selection of rows is whole on every device. With `deterministic`, no state depends on the
    other prompts of its pass, and a store of these states must search deterministically. `layers` has the outputs [N,
    D] (float32) of the requested blocks, counted from 1.
    """

    hidden_NE: Array
    log_z_N: Array
    deterministic: bool = struct.field(pytree_node=False, default=False)
    layers: Mapping[int, Array] = struct.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.log_z_N)

    def with_layers(self, layers: Sequence[int]) -> "States":
        """Return the states with only these of their layers."""
        return self.replace(layers={layer: self.layers[layer] for layer in layers})  # type: ignore[attr-defined]

    def __getitem__(self, rows: Any) -> "States":
        """Return some rows, whole on every device."""
        return parallel.replicate(jax.tree.map(lambda array: array[rows], self))

    def replicated(self) -> "States":
        """Return all rows, whole on every device."""
        return parallel.replicate(self)
