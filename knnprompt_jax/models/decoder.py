"""The decoder: embeddings, stacked blocks under one scan, final normalisation, head. Every family is a configuration of it."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from knnprompt_jax import parallel
from knnprompt_jax.models import attention, layers, rotary
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import dropout as dropout_lib
from knnprompt_jax.models import head as head_lib

Array = jax.Array
UNLIMITED = 2**30  # Tokens: the window of a layer that reads everything.


class Decoder(nnx.Module):
    """A decoder-only language model whose last hidden states are a sufficient statistic of its next-token distributions.

    Weights are `param_dtype`; activations have the same dtype, while normalisation, softmax and the head run in float32. Of int8,
    kernels alone are (`int8`), and the rest is bfloat16.
    """

    def __init__(self, config: config_lib.DecoderConfig, rngs: nnx.Rngs, param_dtype: jnp.dtype = jnp.float32):
        self.config, self.dtype = config, jnp.dtype(param_dtype).name
        block_dtype, param_dtype = param_dtype, config_lib.activations(param_dtype)
        self.tokens = layers._normal(rngs, (config.vocab_size, config.embed_width), param_dtype)
        if config.position_table:
            rows = config.num_positions + config.position_offset
            self.positions = layers._normal(rngs, (rows, config.width), param_dtype, 0.01)
        if config.has_projections:
            self.project_in = layers._normal(rngs, (config.embed_width, config.width), param_dtype)
            self.project_out = layers._normal(rngs, (config.width, config.embed_width), param_dtype)
        if config.final_norm:
            self.final_norm = layers.norm(config, param_dtype)
        if not config.tied_head:
            self.head_rows = layers._normal(rngs, (config.vocab_size, config.embed_width), param_dtype)
        if config.head_bias:
            self.head_bias = layers._zeros((config.vocab_size,), param_dtype)
        self.blocks = layers.stack(config, rngs, block_dtype)

    def __call__(self, tokens_BT: Array, remat: bool = False, dropout: dropout_lib.Dropout = dropout_lib.OFF) -> Array:
        """Hidden states [B, T, E] (float32) of whole sequences, causally; `remat` recomputes blocks in the backward pass."""
        positions_T = jnp.arange(tokens_BT.shape[1])
        x_BTD = dropout.at(self.config.num_layers)(self._embed(tokens_BT, positions_T))
        rotation = self._rotations(positions_T[None])

        def body(x_BTD: Array, block_and_layer: tuple[layers.Block, Array]) -> tuple[Array, None]:
            block, layer = block_and_layer
            of_layer = dropout.at(layer)
            attend = self._causal(layer, len(positions_T), of_layer)
            return block(x_BTD, attend, self._rotate(rotation, layer), of_layer)[0], None

        x_BTD, _ = jax.lax.scan(jax.checkpoint(body) if remat else body, x_BTD, self._stack())
        return self._finish(x_BTD)

    def read_prefix(self, tokens_P: Array, length: Array) -> attention.Prefix:
        """Keys and values [L, G, P, K] of a prefix, once for all prompts; tokens from `length` on are padding."""
        positions_P = jnp.arange(tokens_P.shape[0])
        x_1PD = self._embed(tokens_P[None], positions_P)
        rotation = self._rotations(positions_P[None])

        def body(x_1PD: Array, block_and_layer: tuple[layers.Block, Array]) -> tuple[Array, tuple[Array, Array]]:
            block, layer = block_and_layer
            attend = self._causal(layer, len(positions_P))
            x_1PD, *kv = block(x_1PD, attend, self._rotate(rotation, layer))
            k_GPK, v_GPK = (jnp.moveaxis(for_shards(array)[0], 1, 0) for array in kv)
            return x_1PD, (k_GPK, v_GPK)

        _, (k_LGPK, v_LGPK) = jax.lax.scan(body, x_1PD, self._stack())
        return attention.Prefix(k_LGPK, v_LGPK, length)

    def read_suffixes(
        self,
        tokens_BS: Array,
        stops_BS: Array,
        positions_BS: Array,
        read_positions_J: Array,
        *,
        prefix: attention.Prefix,
        stable_softmax: bool,
        whole_last_block: bool = False,
    ) -> Array:
        """Hidden states [J, E] (float32) at the tokens `read_positions_J` (flat indices into [B, S]) of suffixes packed into rows.

        Each token attends to the prefix and to what `attention.readable` says. The last block runs on the J tokens alone, unless
        `whole_last_block`: where most tokens are read, it has next to none to spare. Without `stable_softmax` a state may be NaN
        where attention logits are very large (see `attention.shared_prefix_attention`).
        """
        mask_BSS, rotation = attention.readable(stops_BS), self._rotations(positions_BS)

        def body(x_BSD: Array, layer: Array) -> tuple[Array, None]:
            attend = self._after_prefix(layer, mask_BSS, positions_BS, positions_BS, prefix, stable_softmax)
            return self._block(layer)(x_BSD, attend, self._rotate(rotation, layer))[0], None

        last = self.config.num_layers - 1
        scanned = jnp.arange(self.config.num_layers if whole_last_block else last)
        x_BSD, _ = jax.lax.scan(body, self._embed(tokens_BS, positions_BS), scanned)
        if whole_last_block:
            return self._finish(x_BSD.reshape(-1, x_BSD.shape[-1])[read_positions_J])
        x_1TD, positions_1T = x_BSD.reshape(1, -1, x_BSD.shape[-1]), positions_BS.reshape(1, -1)
        mask_1JT = attention.readable_at(read_positions_J, stops_BS)[None]
        positions_1J = positions_1T[:, read_positions_J]
        attend = self._after_prefix(last, mask_1JT, positions_1J, positions_1T, prefix, stable_softmax, in_order=False)
        tokens_T = jnp.arange(positions_1T.size)
        rotate_T, rotate_J = (self._rotate(rotation, last, tokens) for tokens in (tokens_T, read_positions_J))
        return self._finish(self._block(last).at(x_1TD, read_positions_J, attend, rotate_T, rotate_J))[0]

    def logits(self, h_NE: Array) -> Array:
        """Next-token logits [N, V] in float32."""
        return self.head.logits(h_NE)

    @property
    def head(self) -> head_lib.Head:
        """What makes logits of states; a bias is one more column, which meets the 1 at the end of every state."""
        rows_VE = self.tokens[...] if self.config.tied_head else self.head_rows[...]
        if self.config.head_bias:
            rows_VE = jnp.concatenate([rows_VE, self.head_bias[...][:, None]], -1)
        return head_lib.Head(rows_VE, self.config.logit_cap)

    def _after_prefix(
        self,
        layer: Array | int,
        mask_BST: Array,
        positions_BS: Array,
        positions_BT: Array,
        prefix: attention.Prefix,
        stable_softmax: bool,
        in_order: bool = True,
    ) -> layers.Attend:
        prefix_of_layer = attention.Prefix(prefix.k[layer], prefix.v[layer], prefix.length)
        rule = self._rule(layer, prefix.k.shape[2] + positions_BT.shape[1])
        mask_BST = rule.within(mask_BST, positions_BS[:, :, None], positions_BT[:, None])

        def attend(q: Array, k: Array, v: Array) -> Array:
            k, v = for_shards(k), for_shards(v)
            return attention.shared_prefix_attention(
                q, k, v, mask_BST, positions_BS, prefix_of_layer, rule, stable_softmax, in_order
            )

        return attend

    @jax.named_scope("embedding")
    def _embed(self, tokens: Array, positions: Array) -> Array:
        x = self.tokens[...][tokens]
        if self.config.embed_scale != 1:
            x = x * jnp.asarray(self.config.embed_scale, x.dtype)
        if self.config.has_projections:
            x = x @ self.project_in[...]
        return x + self.positions[...][positions + self.config.position_offset] if self.config.position_table else x

    def _finish(self, x: Array) -> Array:
        x = self.final_norm(x) if self.config.final_norm else x.astype(jnp.float32)
        x = x @ self.project_out[...].astype(jnp.float32) if self.config.has_projections else x
        return jnp.concatenate([x, jnp.ones_like(x[..., :1])], -1) if self.config.head_bias else x

    def _stack(self) -> tuple[layers.Block, Array]:
        return self.blocks, jnp.arange(self.config.num_layers)

    def _block(self, layer: Array | int) -> layers.Block:
        """The block of one layer, cut from the stack; indexing (not slicing the stack) keeps a single copy of the weights."""
        return jax.tree.map(lambda stacked: stacked[layer], self.blocks)

    def _causal(self, layer: Array | int, length: int, dropout: dropout_lib.Dropout = dropout_lib.OFF) -> layers.Attend:
        rule, of_weights = self._rule(layer, length), dropout.at(dropout_lib.WEIGHTS)
        return lambda q, k, v: attention.causal_attention(q, k, v, rule, of_weights)

    def _rule(self, layer: Array | int, reach: int) -> attention.LogitRule:
        """How a layer attends where there are at most `reach` tokens to read."""
        scale: Array | float = self.config.attention_scale
        if self.config.scale_by_layer:
            scale = scale / (layer + 1)
        windows_L = np.array([window or UNLIMITED for window in self.config.windows])
        window = jnp.asarray(windows_L)[layer] if (windows_L < reach).any() else None
        return attention.LogitRule(scale, window, self.config.attention_cap)

    def _rotations(self, positions_BS: Array) -> rotary.Rotation | None:
        return rotary.rotations(self.config.rotary, positions_BS) if self.config.rotary else None

    def _rotate(
        self, rotations: rotary.Rotation | None, layer: Array | int, tokens_J: Array | None = None
    ) -> layers.Rotate:
        """The rotation of a layer, of all tokens or of some (flat indices)."""
        if rotations is None:
            return layers.unrotated
        tables_L = np.array(self.config.rotary_of_layer or (0,) * self.config.num_layers)
        table = jnp.asarray(tables_L)[layer] if len(self.config.rotary) > 1 else 0
        rotation = jax.tree.map(lambda tables: tables[table], rotations)
        return rotation if tokens_J is None else rotation.at(tokens_J)


def for_shards(array_BTGK: Array) -> Array:
    """Keys or values with as many heads as the mesh has shards of the model, where they are fewer: each shard then has the head
    that its queries read."""
    shards = jax.sharding.get_abstract_mesh().shape.get(parallel.MODEL, 1)
    heads = array_BTGK.shape[2]
    return array_BTGK if heads >= shards else jnp.repeat(array_BTGK, shards // heads, axis=2)
