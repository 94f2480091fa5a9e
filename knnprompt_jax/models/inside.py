"""What happens inside a decoder: the states between its blocks, what each part of a block adds to them, and how that is changed."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from knnprompt_jax.models import attention, decoder, layers
from knnprompt_jax.models import dropout as dropout_lib

Array = jax.Array
PARTS = (dropout_lib.READ, dropout_lib.MLP)  # Attention's output and the MLP's.


def layers_of_suffixes(
    model: decoder.Decoder,
    mesh: jax.sharding.Mesh,
    tokens_BS: Array,
    stops_BS: Array,
    positions_BS: Array,
    read_positions_J: Array,
    *,
    prefix: attention.Prefix,
    stable_softmax: bool,
) -> Array:
    """Hidden states [J, L, D] (float32) after each of L blocks, before any final normalisation; arguments as `Decoder.read_suffixes`."""
    del mesh
    mask_BSS, rotation = attention.readable(stops_BS), model._rotations(positions_BS)

    def body(x_BSD: Array, layer: Array) -> tuple[Array, Array]:
        attend = model._after_prefix(layer, mask_BSS, positions_BS, positions_BS, prefix, stable_softmax)
        x_BSD = model._block(layer)(x_BSD, attend, model._rotate(rotation, layer))[0]
        return x_BSD, x_BSD.reshape(-1, x_BSD.shape[-1])[read_positions_J].astype(jnp.float32)

    _, x_LJD = jax.lax.scan(body, model._embed(tokens_BS, positions_BS), jnp.arange(model.config.num_layers))
    return jnp.moveaxis(x_LJD, 0, 1)


def added(model: decoder.Decoder, tokens_BT: Array) -> Array:
    """What attention and MLP of each block put out for each token of whole sequences, read causally: [L, 2, B, T, D]."""
    positions_T = jnp.arange(tokens_BT.shape[1])
    rotation = model._rotations(positions_T[None])

    def body(x_BTD: Array, block_and_layer: tuple[layers.Block, Array]) -> tuple[Array, Array]:
        block, layer = block_and_layer
        heard: Any = _Listener({})
        x_BTD, *_ = block(x_BTD, model._causal(layer, len(positions_T)), model._rotate(rotation, layer), heard)
        return x_BTD, jnp.stack([heard.outputs[part] for part in PARTS])

    return jax.lax.scan(body, model._embed(tokens_BT, positions_T), model._stack())[1]


@struct.dataclass
class Injection:
    """Each output of attention and MLP times a number, plus a vector times another; a decoder takes it in the place of dropout.

    `vectors_LPD` and `strengths_LPs` hold, for each block and part, the vector, and the factors of the vector and of the output. With a
    `key`, each output then has Gaussian noise of `noise` times its norm.
    """

    vectors_LPD: Array
    strengths_LPs: Array
    key: Any = None
    noise: float = struct.field(pytree_node=False, default=0.0)

    def at(self, layer: Array | int) -> Any:
        """What becomes of the outputs of a block; of embeddings, which come after all layers, nothing."""
        if isinstance(layer, int):
            return dropout_lib.OFF
        key = None if self.key is None else jax.random.fold_in(self.key, layer)
        return _OfBlock(self.vectors_LPD[layer], self.strengths_LPs[layer], key, self.noise)


@struct.dataclass
class _OfBlock:
    vectors_PD: Array
    strengths_Ps: Array
    key: Any
    noise: float = struct.field(pytree_node=False)

    def at(self, place: int) -> Any:
        if place not in PARTS:
            return dropout_lib.OFF
        return lambda output: self._changed(output, PARTS.index(place))

    def _changed(self, output_BTD: Array, part: int) -> Array:
        of_vector, of_output = self.strengths_Ps[part]
        changed_BTD = of_output * output_BTD + of_vector * self.vectors_PD[part]
        if self.key is not None:
            norm_BT1 = jax.lax.stop_gradient(jnp.linalg.norm(changed_BTD, axis=-1, keepdims=True))
            noise_BTD = jax.random.normal(jax.random.fold_in(self.key, part), changed_BTD.shape)
            changed_BTD = changed_BTD + self.noise * norm_BT1 * noise_BTD
        return changed_BTD.astype(output_BTD.dtype)


@struct.dataclass
class _Listener:
    """Changes nothing, and keeps what it is given in each place."""

    outputs: dict[int, Array] = struct.field(pytree_node=False)

    def at(self, place: int) -> Any:
        def keep(output_BTD: Array) -> Array:
            self.outputs[place] = output_BTD
            return output_BTD

        return keep
