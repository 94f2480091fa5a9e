"""What the decoders are made of: normalisation, attention, MLP, block. Softmax and normalisation run in float32."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import dropout as dropout_lib

Array = jax.Array
# Takes queries, keys and values [B, S, H, K] of one layer; returns what each token reads, [B, S, H, K].
Attend = Callable[[Array, Array, Array], Array]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu_new": functools.partial(jax.nn.gelu, approximate=True),
    "gelu_pytorch_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "relu": jax.nn.relu,
}


def _normal(rngs: nnx.Rngs, shape: tuple[int, ...], dtype: jnp.dtype, scale: float = 0.02) -> nnx.Param:
    return nnx.Param((scale * jax.random.normal(rngs.params(), shape)).astype(dtype))


def _zeros(shape: tuple[int, ...], dtype: jnp.dtype) -> nnx.Param:
    return nnx.Param(jnp.zeros(shape, dtype))


class LayerNorm(nnx.Module):
    """Layer normalisation over the last axis, computed in float32 whatever the input; the caller casts."""

    def __init__(self, width: int, epsilon: float, dtype: jnp.dtype):
        self.scale = nnx.Param(jnp.ones((width,), dtype))
        self.bias = _zeros((width,), dtype)
        self.epsilon = epsilon

    def __call__(self, x: Array) -> Array:
        x = x.astype(jnp.float32)
        centred = x - x.mean(-1, keepdims=True)
        variance = jnp.square(centred).mean(-1, keepdims=True)
        normed = centred * jax.lax.rsqrt(variance + self.epsilon)
        return normed * self.scale[...].astype(jnp.float32) + self.bias[...].astype(jnp.float32)


class Attention(nnx.Module):
    """The projections of multi-head attention; how tokens attend is the caller's `Attend`."""

    def __init__(self, config: config_lib.DecoderConfig, rngs: nnx.Rngs, dtype: jnp.dtype):
        width, heads, size = config.width, config.num_heads, config.head_size
        self.qkv_kernel = _normal(rngs, (width, 3, heads, size), dtype)
        self.qkv_bias = _zeros((3, heads, size), dtype)
        self.out_kernel = _normal(rngs, (heads, size, width), dtype, 0.02 / (2 * config.num_layers) ** 0.5)
        self.out_bias = _zeros((width,), dtype)

    def project(self, x_BSD: Array, parts: slice = slice(0, 3)) -> Array:
        """Queries, keys and values (or the named parts of them) in one product: [B, S, 3, H, K]."""
        return jnp.einsum("bsd,dnhk->bsnhk", x_BSD, self.qkv_kernel[...][:, parts]) + self.qkv_bias[...][parts]

    def output(self, read_BSHK: Array) -> Array:
        return jnp.einsum("bshk,hkd->bsd", read_BSHK, self.out_kernel[...]) + self.out_bias[...]


class MLP(nnx.Module):
    """Two dense layers with an activation between."""

    def __init__(self, config: config_lib.DecoderConfig, rngs: nnx.Rngs, dtype: jnp.dtype):
        self.up_kernel = _normal(rngs, (config.width, config.mlp_width), dtype)
        self.up_bias = _zeros((config.mlp_width,), dtype)
        self.down_kernel = _normal(rngs, (config.mlp_width, config.width), dtype, 0.02 / (2 * config.num_layers) ** 0.5)
        self.down_bias = _zeros((config.width,), dtype)
        self.activation = config.activation

    def __call__(self, x_BSD: Array) -> Array:
        hidden_BSF = ACTIVATIONS[self.activation](x_BSD @ self.up_kernel[...] + self.up_bias[...])
        return hidden_BSF @ self.down_kernel[...] + self.down_bias[...]


class Block(nnx.Module):
    """One transformer block, normalised before each part (GPT-2, OPT) or after it (OPT-350m)."""

    def __init__(self, config: config_lib.DecoderConfig, rngs: nnx.Rngs, dtype: jnp.dtype):
        self.attention_norm = LayerNorm(config.width, config.norm_epsilon, dtype)
        self.attention = Attention(config, rngs, dtype)
        self.mlp_norm = LayerNorm(config.width, config.norm_epsilon, dtype)
        self.mlp = MLP(config, rngs, dtype)
        self.norm_first = config.norm_first

    def __call__(
        self, x_BSD: Array, attend: Attend, dropout: dropout_lib.Dropout = dropout_lib.OFF
    ) -> tuple[Array, Array]:
        """All tokens through the block. Returns the new [B, S, D] and this layer's keys and values [B, S, 2, H, K]."""
        qkv_BSnHK = self.attention.project(self._before(self.attention_norm, x_BSD))
        read_BSHK = attend(*(qkv_BSnHK[:, :, part] for part in range(3)))
        return self._finish(x_BSD, read_BSHK, dropout), qkv_BSnHK[:, :, 1:]

    def at(self, x_1TD: Array, ends_J: Array, attend: Attend) -> Array:
        """Only the tokens `ends_J` come out, [1, J, D]: what a last block needs. Keys and values are those of all tokens."""
        x_1JD = x_1TD[:, ends_J]
        q_1JHK = self.attention.project(self._before(self.attention_norm, x_1JD), slice(0, 1))[:, :, 0]
        kv_1TnHK = self.attention.project(self._before(self.attention_norm, x_1TD), slice(1, 3))
        return self._finish(x_1JD, attend(q_1JHK, kv_1TnHK[:, :, 0], kv_1TnHK[:, :, 1]))

    def _finish(self, x: Array, read: Array, dropout: dropout_lib.Dropout = dropout_lib.OFF) -> Array:
        x = self._after(self.attention_norm, x + dropout.at(dropout_lib.READ)(self.attention.output(read)))
        mlp = dropout.at(dropout_lib.MLP)(self.mlp(self._before(self.mlp_norm, x)))
        return self._after(self.mlp_norm, x + mlp)

    def _before(self, norm: LayerNorm, x: Array) -> Array:
        return norm(x).astype(x.dtype) if self.norm_first else x

    def _after(self, norm: LayerNorm, x: Array) -> Array:
        return x if self.norm_first else norm(x).astype(x.dtype)
