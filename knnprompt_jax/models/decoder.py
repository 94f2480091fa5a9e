"""The decoder of every family: embeddings, stacked blocks under one scan, final normalisation, head."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from knnprompt_jax.common import parallel
from knnprompt_jax.models import attention, layers
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.models.layers import Attend

Array = jax.Array
UNLIMITED = 2**30  # Window in tokens of a layer that attends to everything.


class Decoder(nnx.Module):
    """A decoder-only language model. Its last hidden states are a sufficient statistic of its next-token distributions.

    Weights and activations have the dtype `param_dtype`. Normalisation, softmax and the head run in float32.
    """

    def __init__(self, config: config_lib.DecoderConfig, rngs: nnx.Rngs, param_dtype: jnp.dtype = jnp.float32):
        self.config = config
        self.dtype = jnp.dtype(param_dtype).name
        self.tokens = layers.normal_param(rngs, (config.vocab_size, config.embed_width), param_dtype)
        if config.position_table:
            rows = config.num_positions + config.position_offset
            self.positions = layers.normal_param(rngs, (rows, config.width), param_dtype, 0.01)
        if config.has_projections:
            self.project_in = layers.normal_param(rngs, (config.embed_width, config.width), param_dtype)
            self.project_out = layers.normal_param(rngs, (config.width, config.embed_width), param_dtype)
        if config.final_norm:
            self.final_norm = layers.make_norm(config, param_dtype)
        if not config.tied_head:
            self.head_rows = layers.normal_param(rngs, (config.vocab_size, config.embed_width), param_dtype)
        if config.head_bias:
            self.head_bias = layers.zero_param((config.vocab_size,), param_dtype)
        self.blocks = layers.stack_blocks(config, rngs, param_dtype)

    def __call__(
        self,
        tokens_BT: Array,
        lengths_B: Array | None = None,
        remat: bool = False,
        dropout: layers.Dropout = layers.NO_DROPOUT,
    ) -> Array:
        """Return hidden states [B, T, E] (float32) of whole sequences.

        Args:
            tokens_BT: the sequences, padded on the right.
            lengths_B: the lengths of the sequences; only attention in both directions needs them.
            remat: recompute the blocks in the backward pass, which saves memory.
            dropout: applied to the embeddings and within every block.
        """
        positions_T = jnp.arange(tokens_BT.shape[1])
        x_BTD = dropout.at(self.config.num_layers)(self._embed(tokens_BT, positions_T))
        rotations = self._rotations(positions_T[None])

        def body(x_BTD: Array, block_and_layer: tuple[layers.Block, Array]) -> tuple[Array, None]:
            block, layer = block_and_layer
            layer_dropout = dropout.at(layer)
            attend = self._attend(layer, len(positions_T), layer_dropout, lengths_B)
            return block(x_BTD, attend, self._rotate(rotations, layer), layer_dropout)[0], None

        stack = self.blocks, jnp.arange(self.config.num_layers)
        return self._finish(jax.lax.scan(jax.checkpoint(body) if remat else body, x_BTD, stack)[0])

    def read_prefix(self, tokens_P: Array, length: Array) -> attention.Prefix:
        """Return the keys and values [L, G, P, K] of the shared prefix; tokens from `length` on are padding."""
        positions_P = jnp.arange(tokens_P.shape[0])
        rotations = self._rotations(positions_P[None])

        def body(x_1PD: Array, block_and_layer: tuple[layers.Block, Array]) -> tuple[Array, tuple[Array, Array]]:
            block, layer = block_and_layer
            attend = self._attend(layer, len(positions_P))
            x_1PD, k_1PGK, v_1PGK = block(x_1PD, attend, self._rotate(rotations, layer))
            return x_1PD, (_head_first(k_1PGK), _head_first(v_1PGK))

        stack = self.blocks, jnp.arange(self.config.num_layers)
        _, (k_LGPK, v_LGPK) = jax.lax.scan(body, self._embed(tokens_P[None], positions_P), stack)
        return attention.Prefix(k_LGPK, v_LGPK, length)

    def read_suffixes(
        self,
        step: tuple[Array, Array, Array, Array],
        *,
        prefix: attention.Prefix,
        use_kernel: bool,
        activations: tuple[head_lib.Activation, ...] = (),
        whole_last_block: bool = False,
    ) -> tuple[Array, dict[head_lib.Activation, Array]]:
        """Return the states of some tokens of suffixes that are packed into rows.

        Each token attends to the prefix and to the tokens that `attention.attention_mask` allows.

        Args:
            step: the packed suffixes, and the tokens whose states are returned (`prompts.packing.Step`).
            prefix: the result of `read_prefix`.
            use_kernel: whether `prefix_kernel` computes attention, except that of the last block on outputs only.
            activations: those that are returned.
            whole_last_block: run the last block on all tokens. By default it runs on the J outputs only, which saves
                little if most tokens are outputs; its mean is not computed then.

        Returns:
            The hidden states [J, E] after the final normalisation, and each of `activations` [J, D], all float32.
        """
        for activation in activations:
            assert 1 <= activation.block <= self.config.num_layers - (activation.is_mean and not whole_last_block)
        tokens_BS, stops_BS, positions_BS, output_positions_J = step
        last = self.config.num_layers - 1
        mask_BSS = attention.attention_mask(stops_BS)
        rotations = self._rotations(positions_BS)
        make_attend = functools.partial(self._attend_after_prefix, prefix)

        def body(carry: tuple[Array, Any], layer: Array) -> tuple[tuple[Array, Any], None]:
            x_BSD, kept = carry
            attend = make_attend(use_kernel, layer, mask_BSS, positions_BS, positions_BS)
            x_BSD = self._block(layer)(x_BSD, attend, self._rotate(rotations, layer))[0]
            select = functools.partial(_select, x_BSD, mask_BSS, output_positions_J)
            return (x_BSD, _keep(kept, layer, select)), None

        kept = {activation: jnp.zeros((len(output_positions_J), self.config.width)) for activation in activations}
        layers_l = jnp.arange(self.config.num_layers if whole_last_block else last)
        (x_BSD, kept), _ = jax.lax.scan(body, (self._embed(tokens_BS, positions_BS), kept), layers_l)
        x_1TD = x_BSD.reshape(1, -1, x_BSD.shape[-1])
        positions_1T = positions_BS.reshape(1, -1)
        if whole_last_block:
            x_JD = x_1TD[0, output_positions_J]
        else:
            mask_1JT = attention.attention_mask_at(output_positions_J, stops_BS)[None]
            positions_1J = positions_1T[:, output_positions_J]
            attend = make_attend(False, last, mask_1JT, positions_1J, positions_1T)
            rotate_T = self._rotate(self._rotations(positions_1T), last)
            rotate_J = self._rotate(self._rotations(positions_1J), last)
            x_JD = self._block(last).at(x_1TD, output_positions_J, attend, rotate_T, rotate_J)[0]
            kept = _keep(kept, last, lambda is_mean: x_JD.astype(jnp.float32))
        return self._finish(x_JD), kept

    @property
    def head(self) -> head_lib.Head:
        """The head. A bias is one more column of rows; the 1 at the end of every state multiplies it."""
        rows_VE = self.tokens[...] if self.config.tied_head else self.head_rows[...]
        if self.config.head_bias:
            rows_VE = jnp.concatenate([rows_VE, self.head_bias[...][:, None]], -1)
        return head_lib.Head(rows_VE)

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

    def _block(self, layer: Array | int) -> layers.Block:
        """Return the block of one layer. Indexing (instead of slicing the stack) keeps a single copy of the weights."""
        return jax.tree.map(lambda stacked: stacked[layer], self.blocks)

    def _attend(
        self,
        layer: Array | int,
        length: int,
        dropout: layers.Dropout = layers.NO_DROPOUT,
        lengths_B: Array | None = None,
    ) -> Attend:
        """Return a layer's attention over whole sequences, padded to `length` tokens."""
        rule = self._logit_rule(layer, length)
        weights_dropout = dropout.at(layers.DROP_WEIGHTS)
        if self.config.bidirectional:
            assert lengths_B is not None
            return lambda q, k, v: attention.padded_attention(q, k, v, lengths_B, rule, weights_dropout)
        return lambda q, k, v: attention.causal_attention(q, k, v, rule, weights_dropout)

    def _attend_after_prefix(
        self,
        prefix: attention.Prefix,
        use_kernel: bool,
        layer: Array | int,
        mask_BST: Array,
        query_positions_BS: Array,
        key_positions_BT: Array,
    ) -> Attend:
        """Return a layer's attention of queries at some positions to the prefix and to keys at some positions."""
        layer_prefix = attention.Prefix(prefix.k[layer], prefix.v[layer], prefix.length)
        rule = self._logit_rule(layer, prefix.k.shape[2] + key_positions_BT.shape[1])
        mask_BST = rule.within(mask_BST, query_positions_BS[:, :, None], key_positions_BT[:, None])

        def attend(q: Array, k: Array, v: Array) -> Array:
            k = repeat_heads_for_shards(k)
            v = repeat_heads_for_shards(v)
            return attention.shared_prefix_attention(
                q, k, v, mask_BST, query_positions_BS, layer_prefix, rule, use_kernel
            )

        return attend

    def _logit_rule(self, layer: Array | int, num_keys: int) -> attention.LogitRule:
        """Return the attention rule of a layer for at most `num_keys` keys."""
        windows_L = np.array([window or UNLIMITED for window in self.config.windows])
        window = jnp.asarray(windows_L)[layer] if (windows_L < num_keys).any() else None
        return attention.LogitRule(self.config.attention_scale, window)

    def _rotations(self, positions_BS: Array) -> config_lib.Rotation | None:
        return config_lib.rotations(self.config.rotary, positions_BS) if self.config.rotary else None

    def _rotate(self, rotations: config_lib.Rotation | None, layer: Array | int) -> layers.Rotate:
        """Return the rotation of a layer."""
        if rotations is None:
            return layers.unrotated
        tables_L = np.array(self.config.layer_rotary or (0,) * self.config.num_layers)
        table = jnp.asarray(tables_L)[layer] if len(self.config.rotary) > 1 else 0
        return jax.tree.map(lambda tables: tables[table], rotations)


def _head_first(array_1PGK: Array) -> Array:
    """Return keys or values of the prefix as [G, P, K]."""
    return jnp.moveaxis(repeat_heads_for_shards(array_1PGK)[0], 1, 0)


def _keep(
    kept: dict[head_lib.Activation, Array], layer: Array | int, select: Callable[[bool], Array]
) -> dict[head_lib.Activation, Array]:
    """Return the requested activations, with those of `layer`, counted from 0, which `select` computes."""

    def kept_or_selected(output: head_lib.Activation, kept_JD: Array) -> Array:
        return jax.lax.cond(layer == output.block - 1, lambda: select(output.is_mean), lambda: kept_JD)

    return {output: kept_or_selected(output, kept_JD) for output, kept_JD in kept.items()}


def _select(x_BSD: Array, mask_BSS: Array, output_positions_J: Array, is_mean: bool) -> Array:
    """Return x [J, D] (float32) at some tokens, or the mean of x over the tokens of the row that each of them sees."""
    x_BSD = x_BSD.astype(jnp.float32)
    if is_mean:
        counts_BS1 = jnp.maximum(mask_BSS.sum(-1, keepdims=True), 1)  # Padding sees no token.
        x_BSD = jnp.einsum("bst,btd->bsd", mask_BSS.astype(jnp.float32), x_BSD) / counts_BS1
    return x_BSD.reshape(-1, x_BSD.shape[-1])[output_positions_J]


def repeat_heads_for_shards(array_BTGK: Array) -> Array:
    """Repeat key heads until every shard of the model axis has one: the head that the shard's queries read."""
    shards = jax.sharding.get_abstract_mesh().shape.get(parallel.MODEL, 1)
    heads = array_BTGK.shape[2]
    return array_BTGK if heads >= shards else jnp.repeat(array_BTGK, shards // heads, axis=2)
