"""A sequence classifier: a BERT or a decoder with a classification head."""

import jax
import jax.numpy as jnp
from flax import nnx

from knnprompt_jax.models import layers, registry
from knnprompt_jax.models.families import bert

Array = jax.Array


class SequenceClassifier(nnx.Module):
    """A BERT or a decoder with a classification head, as in `transformers`' models for sequence classification.

    BERT: a dense layer with a bias on the pooled first token. Decoders: a dense layer without a bias on the state of
    the last token before the padding. Padding is on the right, where causal attention hides it.
    """

    def __init__(self, backbone: registry.Model, num_classes: int, rngs: nnx.Rngs):
        self.backbone = backbone
        self.head_kernel = layers.normal(rngs, (backbone.config.embed_width, num_classes), jnp.float32)
        if self.is_bidirectional:
            self.head_bias = layers.zeros((num_classes,), jnp.float32)

    @property
    def is_bidirectional(self) -> bool:
        return isinstance(self.backbone, bert.Encoder)

    def __call__(
        self,
        tokens_BT: Array,
        types_BT: Array,
        lengths_B: Array,
        dropout: layers.Dropout = layers.NO_DROPOUT,
        remat: bool = False,
    ) -> Array:
        """Return class logits [B, C] of right-padded sequences, float32."""
        if self.is_bidirectional:
            hidden_BTD = self.backbone(tokens_BT, lengths_B, types_BT, remat, dropout)
            pooled_BD = dropout.at(self.backbone.config.num_layers + 1)(self.backbone.pool(hidden_BTD))
            return pooled_BD @ self.head_kernel[...] + self.head_bias[...]
        hidden_BTE = self.backbone(tokens_BT, remat, dropout)
        last_BE = jnp.take_along_axis(hidden_BTE, lengths_B[:, None, None] - 1, axis=1)[:, 0]
        return last_BE[:, : self.backbone.config.embed_width] @ self.head_kernel[...]  # Phi appends 1 for its bias.
