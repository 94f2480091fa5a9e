"""A BERT or a decoder with a classification head."""

import jax
import jax.numpy as jnp
from flax import nnx

from knnprompt_jax.models import bert, layers, registry
from knnprompt_jax.models import dropout as dropout_lib

Array = jax.Array


class SequenceClassifier(nnx.Module):
    """Class logits of right-padded sequences, as `transformers`' models for sequence classification read them off.

    BERT: dense layer with a bias on the pooled first token. Decoders: dense layer without a bias on the state of the last
    token that is not padding; causal attention keeps padding on the right from everything before it.
    """

    def __init__(self, backbone: registry.Model, num_classes: int, rngs: nnx.Rngs):
        self.backbone = backbone
        self.head_kernel = layers._normal(rngs, (backbone.config.embed_width, num_classes), jnp.float32)
        if self.is_bidirectional:
            self.head_bias = layers._zeros((num_classes,), jnp.float32)

    @property
    def is_bidirectional(self) -> bool:
        return isinstance(self.backbone, bert.Encoder)

    def __call__(
        self,
        tokens_BT: Array,
        types_BT: Array,
        lengths_B: Array,
        dropout: dropout_lib.Dropout = dropout_lib.OFF,
        remat: bool = False,
    ) -> Array:
        """Logits [B, C] in float32."""
        if self.is_bidirectional:
            hidden_BTD = self.backbone(tokens_BT, lengths_B, types_BT, remat, dropout)
            pooled_BD = dropout.at(self.backbone.config.num_layers + 1)(self.backbone.pool(hidden_BTD))
            return pooled_BD @ self.head_kernel[...] + self.head_bias[...]
        hidden_BTE = self.backbone(tokens_BT, remat, dropout)
        last_BE = jnp.take_along_axis(hidden_BTE, lengths_B[:, None, None] - 1, axis=1)[:, 0]
        return last_BE @ self.head_kernel[...]
