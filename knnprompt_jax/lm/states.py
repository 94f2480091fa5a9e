"""What a pass of the language model leaves of each prompt: the statistics from which every next-token distribution follows."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from knnprompt_jax import parallel

Array = jax.Array


@struct.dataclass
class States:
    """One row per prompt: the head's input `hidden_NE` and the log-partition `log_z_N` in nats, both float32.

    log p(v) = w_v · h − log Z, with w_v the rows of the head (`models.head`). A pass leaves its rows split over the devices of the mesh;
    a selection of rows lies whole on each of them. `deterministic` says that no state depends on what was read beside its prompt, and
    asks as much of a store of them.
    """

    hidden_NE: Array
    log_z_N: Array
    deterministic: bool = struct.field(pytree_node=False, default=False)

    def __len__(self) -> int:
        return len(self.log_z_N)

    def __getitem__(self, rows: Any) -> "States":
        return parallel.replicate(jax.tree.map(lambda array: array[rows], self))


def concatenate(parts: Sequence[States]) -> States:
    """States of several sets of prompts, one after the other."""
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *parts)
