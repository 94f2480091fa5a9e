"""The decoder: embeddings, stacked blocks under one scan, final normalisation, tied head. GPT-2 and OPT are its configurations."""

import jax
import jax.numpy as jnp
from flax import nnx

from knnprompt_jax.models import attention, layers, vocabulary
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import dropout as dropout_lib

Array = jax.Array


class Decoder(nnx.Module):
    """A decoder-only language model whose last hidden states are a sufficient statistic of its next-token distributions.

    Weights are `param_dtype`; activations have the same dtype, while normalisation, softmax and the head run in float32.
    """

    def __init__(self, config: config_lib.DecoderConfig, rngs: nnx.Rngs, param_dtype: jnp.dtype = jnp.float32):
        self.config = config
        self.tokens = layers._normal(rngs, (config.vocab_size, config.embed_width), param_dtype)
        self.positions = layers._normal(
            rngs, (config.num_positions + config.position_offset, config.width), param_dtype, 0.01
        )
        if config.has_projections:
            self.project_in = layers._normal(rngs, (config.embed_width, config.width), param_dtype)
            self.project_out = layers._normal(rngs, (config.width, config.embed_width), param_dtype)
        if config.final_norm:
            self.final_norm = layers.LayerNorm(config.width, config.norm_epsilon, param_dtype)
        if not config.tied_head:
            self.head = layers._normal(rngs, (config.vocab_size, config.embed_width), param_dtype)

        @nnx.split_rngs(splits=config.num_layers)
        @nnx.vmap(transform_metadata={nnx.PARTITION_NAME: None})
        def stack(rngs: nnx.Rngs) -> layers.Block:
            return layers.Block(config, rngs, param_dtype)

        self.blocks = stack(rngs)

    def __call__(self, tokens_BT: Array, remat: bool = False, dropout: dropout_lib.Dropout = dropout_lib.OFF) -> Array:
        """Hidden states [B, T, E] (float32) of whole sequences, causally; `remat` recomputes blocks in the backward pass."""
        x_BTD = dropout.at(self.config.num_layers)(self._embed(tokens_BT, jnp.arange(tokens_BT.shape[1])))

        def body(x_BTD: Array, block_and_layer: tuple[layers.Block, Array]) -> tuple[Array, None]:
            block, layer = block_and_layer
            own = dropout.at(layer)
            return block(x_BTD, self._causal(layer, own), own)[0], None

        x_BTD, _ = jax.lax.scan(jax.checkpoint(body) if remat else body, x_BTD, self._stack())
        return self._finish(x_BTD)

    def read_prefix(self, tokens_P: Array, length: Array) -> attention.Prefix:
        """Keys and values [L, H, P, K] of a prefix, once for all prompts; tokens from `length` on are padding."""
        x_1PD = self._embed(tokens_P[None], jnp.arange(tokens_P.shape[0]))

        def body(x_1PD: Array, block_and_layer: tuple[layers.Block, Array]) -> tuple[Array, Array]:
            block, layer = block_and_layer
            x_1PD, kv_1PnHK = block(x_1PD, self._causal(layer))
            return x_1PD, jnp.einsum("pnhk->nhpk", kv_1PnHK[0])

        _, kv_LnHPK = jax.lax.scan(body, x_1PD, self._stack())
        return attention.Prefix(kv_LnHPK[:, 0], kv_LnHPK[:, 1], length)

    def read_suffixes(
        self,
        tokens_BS: Array,
        stops_BS: Array,
        positions_BS: Array,
        ends_J: Array,
        *,
        prefix: attention.Prefix,
        safe: bool,
    ) -> Array:
        """Hidden states [J, E] (float32) at the tokens `ends_J` (flat indices into [B, S]) of suffixes packed into rows.

        Each token attends to the prefix and to what `attention.readable` says. The last block runs on the J ends alone.
        Unless `safe`, a state may be NaN where attention logits are very large (see `attention.shared_prefix_attention`).
        """
        last = self.config.num_layers - 1
        x_BSD = self._through_blocks(tokens_BS, stops_BS, positions_BS, prefix, safe, last)
        attend = self._after_prefix(last, attention.readable_at(ends_J, stops_BS)[None], prefix, safe)
        x_1TD = x_BSD.reshape(1, -1, x_BSD.shape[-1])
        return self._finish(self._block(last).at(x_1TD, ends_J, attend))[0]

    def score_suffixes(
        self,
        tokens_BS: Array,
        stops_BS: Array,
        positions_BS: Array,
        ends_J: Array,
        targets_J: Array,
        *,
        prefix: attention.Prefix,
        safe: bool,
    ) -> Array:
        """log p [J] (float32, nats) that token `targets_J` follows the token `ends_J`, read as in `read_suffixes`.

        All blocks run on all tokens: where most of them are read, the last has next to none to spare.
        """
        x_BSD = self._through_blocks(tokens_BS, stops_BS, positions_BS, prefix, safe, self.config.num_layers)
        h_JE = self._finish(x_BSD.reshape(-1, x_BSD.shape[-1])[ends_J])
        return vocabulary.log_probabilities(h_JE, self.head_VE, targets_J)

    def logits(self, h_NE: Array) -> Array:
        """Next-token logits [N, V] in float32."""
        return jnp.einsum("...e,ve->...v", h_NE.astype(jnp.float32), self.head_VE.astype(jnp.float32))

    @property
    def head_VE(self) -> Array:
        return self.tokens[...] if self.config.tied_head else self.head[...]

    def _through_blocks(
        self,
        tokens_BS: Array,
        stops_BS: Array,
        positions_BS: Array,
        prefix: attention.Prefix,
        safe: bool,
        num_blocks: int,
    ) -> Array:
        """Activations [B, S, D] of packed rows after the first blocks."""
        mask_BSS = attention.readable(stops_BS)

        def body(x_BSD: Array, layer: Array) -> tuple[Array, None]:
            return self._block(layer)(x_BSD, self._after_prefix(layer, mask_BSS, prefix, safe))[0], None

        return jax.lax.scan(body, self._embed(tokens_BS, positions_BS), jnp.arange(num_blocks))[0]

    def _after_prefix(self, layer: Array | int, mask_BST: Array, prefix: attention.Prefix, safe: bool) -> layers.Attend:
        own = attention.Prefix(prefix.k[layer], prefix.v[layer], prefix.length)
        return lambda q, k, v: attention.shared_prefix_attention(q, k, v, mask_BST, own, self._scale(layer), safe)

    def _embed(self, tokens: Array, positions: Array) -> Array:
        x = self.tokens[...][tokens]
        if self.config.has_projections:
            x = x @ self.project_in[...]
        return x + self.positions[...][positions + self.config.position_offset]

    def _finish(self, x: Array) -> Array:
        x = self.final_norm(x) if self.config.final_norm else x.astype(jnp.float32)
        return x @ self.project_out[...].astype(jnp.float32) if self.config.has_projections else x

    def _stack(self) -> tuple[layers.Block, Array]:
        return self.blocks, jnp.arange(self.config.num_layers)

    def _block(self, layer: Array | int) -> layers.Block:
        """The block of one layer, cut from the stack; indexing (not slicing the stack) keeps a single copy of the weights."""
        return jax.tree.map(lambda stacked: stacked[layer], self.blocks)

    def _causal(self, layer: Array, dropout: dropout_lib.Dropout = dropout_lib.OFF) -> layers.Attend:
        own = dropout.at(dropout_lib.WEIGHTS)
        return lambda q, k, v: attention.causal_attention(q, k, v, self._scale(layer), own)

    def _scale(self, layer: Array | int) -> Array | float:
        scale = self.config.head_size**-0.5 if self.config.scale_by_head else 1.0
        return scale / (layer + 1) if self.config.scale_by_layer else scale
