"""BERT: the encoder, its config.json and the names of its weights."""

import jax
import jax.numpy as jnp
from flax import nnx

from knnprompt_jax.models import attention, layers
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models.families import Family, weight_names
from knnprompt_jax.models.families.weight_names import NameRule

Array = jax.Array


class Encoder(nnx.Module):
    """A bidirectional transformer over right-padded sequences, and its pooler.

    Its blocks are those of a decoder that normalises after each part.
    Weights and activations have the dtype `param_dtype`. Normalisation, softmax and the pooler run in float32.
    """

    def __init__(self, config: config_lib.DecoderConfig, rngs: nnx.Rngs, param_dtype: jnp.dtype = jnp.float32):
        self.config = config
        self.tokens = layers.normal_param(rngs, (config.vocab_size, config.width), param_dtype)
        self.positions = layers.normal_param(rngs, (config.num_positions, config.width), param_dtype)
        self.types = layers.normal_param(rngs, (config.num_types, config.width), param_dtype)
        self.embedding_norm = layers.make_norm(config, param_dtype)
        self.pooler_kernel = layers.normal_param(rngs, (config.width, config.width), param_dtype)
        self.pooler_bias = layers.zero_param((config.width,), param_dtype)
        self.blocks = layers.stack_blocks(config, rngs, param_dtype)

    def __call__(
        self,
        tokens_BT: Array,
        lengths_B: Array,
        types_BT: Array | None = None,
        remat: bool = False,
        dropout: layers.Dropout = layers.NO_DROPOUT,
    ) -> Array:
        """Return hidden states [B, T, D] (float32).

        Args:
            tokens_BT: the sequences, padded on the right. States of padding are meaningless.
            lengths_B: the lengths of the sequences.
            types_BT: the number of the text in a pair that each token belongs to; None for single texts.
            remat: recompute the blocks in the backward pass, which saves memory.
            dropout: applied to the embeddings and within every block.
        """
        types_BTD = self.types[...][0 if types_BT is None else types_BT]
        x_BTD = self.tokens[...][tokens_BT] + self.positions[...][: tokens_BT.shape[1]] + types_BTD
        x_BTD = self.embedding_norm(x_BTD).astype(x_BTD.dtype)
        x_BTD = dropout.at(self.config.num_layers)(x_BTD)
        rule = attention.LogitRule(self.config.attention_scale)

        def body(x_BTD: Array, block_and_layer: tuple[layers.Block, Array]) -> tuple[Array, None]:
            block, layer = block_and_layer
            layer_dropout = dropout.at(layer)

            def attend(q_BTHK: Array, k_BTHK: Array, v_BTHK: Array) -> Array:
                weights_dropout = layer_dropout.at(layers.DROP_WEIGHTS)
                return attention.padded_attention(q_BTHK, k_BTHK, v_BTHK, lengths_B, rule, weights_dropout)

            return block(x_BTD, attend, dropout=layer_dropout)[0], None

        stack = self.blocks, jnp.arange(self.config.num_layers)
        x_BTD, _ = jax.lax.scan(jax.checkpoint(body) if remat else body, x_BTD, stack)
        return x_BTD.astype(jnp.float32)

    def pool(self, hidden_BTD: Array) -> Array:
        """Return BERT's pretrained summary of a sequence [B, D]: a dense layer and tanh on the first token's state."""
        kernel_DD = self.pooler_kernel[...].astype(jnp.float32)
        bias_D = self.pooler_bias[...].astype(jnp.float32)
        return jnp.tanh(hidden_BTD[:, 0] @ kernel_DD + bias_D)


def _config_from_hf(hf: config_lib.Fields) -> config_lib.DecoderConfig:
    hf.require("is_decoder", False)
    hf.require("add_cross_attention", False)
    hf.choice("position_embedding_type", "absolute", ("absolute",))
    hf.value("tie_word_embeddings")  # For the head of masked words, which is not loaded.
    width = hf.size("hidden_size", 768)
    return config_lib.DecoderConfig.with_equal_heads(
        family=hf.value("model_type"),
        vocab_size=hf.size("vocab_size", 30522),
        width=width,
        num_layers=hf.size("num_hidden_layers", 12),
        num_heads=hf.divisor("num_attention_heads", width, 12),
        mlp_width=hf.size("intermediate_size", 3072),
        num_positions=hf.size("max_position_embeddings", 512),
        num_types=hf.size("type_vocab_size", 2),
        activation=hf.choice("hidden_act", "gelu", layers.ACTIVATIONS),
        norm_positions=(config_lib.AFTER,),
        norm_epsilon=hf.number("layer_norm_eps", 1e-12),
        final_norm=False,
    )


_LAYER = "encoder.layer.{layer}."
_SELF = _LAYER + "attention.self."
# Google's files call the weights of normalisation gamma and beta.
_TABLE = weight_names.NameTable(
    prefixes=("bert.",),
    # Position numbers, and the pretraining heads for masked words and next sentences.
    buffers=r"embeddings\.position_ids|cls\..*",
    endings={".gamma": ".weight", ".beta": ".bias"},
    rules=(
        NameRule("embeddings.word_embeddings.weight", "tokens", "v d -> v d"),
        NameRule("embeddings.position_embeddings.weight", "positions", "m d -> m d"),
        NameRule("embeddings.token_type_embeddings.weight", "types", "t d -> t d"),
        *weight_names.norm("embeddings.LayerNorm", "embedding_norm"),
        *weight_names.attention(_SELF + "query", _SELF + "key", _SELF + "value", _LAYER + "attention.output.dense"),
        *weight_names.norm(_LAYER + "attention.output.LayerNorm", "blocks.attention_norm"),
        *weight_names.dense(_LAYER + "intermediate.dense", "blocks.mlp.up", "f d -> d f"),
        *weight_names.dense(_LAYER + "output.dense", "blocks.mlp.down", "d f -> f d"),
        *weight_names.norm(_LAYER + "output.LayerNorm", "blocks.mlp_norm"),
        *weight_names.dense("pooler.dense", "pooler", "e d -> d e"),
    ),
)
FAMILIES = (Family("bert", _config_from_hf, _TABLE),)
