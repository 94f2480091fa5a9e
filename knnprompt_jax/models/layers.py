"""The parts of decoders: normalisation, attention, MLP, block. Softmax and normalisation run in float32."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx, struct

from knnprompt_jax.models import config as config_lib

Array = jax.Array
# Maps one layer's queries [B, S, H, K], keys and values [B, T, G, K] to the output of attention, [B, S, H, K].
Attend = Callable[[Array, Array, Array], Array]
# Adds positions to queries or keys [B, S, H, K].
Rotate = Callable[[Array], Array]

MASKED = -1e30  # A logit; finite, so that a row of masked logits gives zeros through exp and never NaN.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu_new": functools.partial(jax.nn.gelu, approximate=True),
    "gelu_fast": functools.partial(jax.nn.gelu, approximate=True),
    "gelu_pytorch_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}


# Where a block has dropout: attention weights, the output of attention, and the output of the MLP.
DROP_WEIGHTS = 0
DROP_ATTENTION = 1
DROP_MLP = 2


@struct.dataclass
class Dropout:
    """Zero each number with probability `rate` and scale the others so that means stay the same.

    The zeros depend only on the key, so that a restarted training draws the same ones.
    """

    key: Any  # A random key; None only if the rate is 0.
    rate: float = struct.field(pytree_node=False)

    def at(self, number: Array | int) -> "Dropout":
        """Return the same dropout with other draws, for a layer or a part of it."""
        return dataclasses.replace(self, key=jax.random.fold_in(self.key, number)) if self.rate else self

    def __call__(self, x: Array) -> Array:
        if not self.rate:
            return x
        kept = jax.random.bernoulli(self.key, 1 - self.rate, x.shape)
        return jnp.where(kept, x / (1 - self.rate), 0).astype(x.dtype)


NO_DROPOUT = Dropout(None, 0.0)


def unrotated(x_BSHK: Array) -> Array:
    """Return queries or keys unchanged, for models whose positions are in their embeddings."""
    return x_BSHK


def normal_param(rngs: nnx.Rngs, shape: tuple[int, ...], dtype: jnp.dtype, scale: float = 0.02) -> nnx.Param:
    return nnx.Param((scale * jax.random.normal(rngs.params(), shape)).astype(dtype))


def zero_param(shape: tuple[int, ...], dtype: jnp.dtype) -> nnx.Param:
    return nnx.Param(jnp.zeros(shape, dtype))


def _output_spread(config: config_lib.DecoderConfig) -> float:
    """Return the standard deviation of the initial kernels that write to the residual stream."""
    return 0.02 / (2 * config.num_layers) ** 0.5


def _heads(x_BSD: Array, kernel_DHK: Array, bias_HK: Array | None) -> Array:
    """Return x · kernel + bias, [B, S, H, K].

    All heads are columns, F = H · K, of one product: with heads of 64 as an axis, a TPU would run at half the rate.
    """
    out_BSF = x_BSD @ kernel_DHK.reshape(len(kernel_DHK), -1)
    if bias_HK is not None:
        out_BSF = out_BSF + bias_HK.reshape(-1)
    return out_BSF.reshape(*out_BSF.shape[:2], *kernel_DHK.shape[1:])


class Norm(nnx.Module):
    """Normalisation over as many last axes as its shape has. It returns float32 for any input."""

    def __init__(self, shape: tuple[int, ...], kind: str, epsilon: float, dtype: jnp.dtype):
        """`kind` is `DecoderConfig.norm`."""
        self.kind = kind
        self.epsilon = epsilon
        self.axes = tuple(range(-len(shape), 0))
        self.scale = nnx.Param(jnp.full(shape, kind != "rms_plus_one", dtype))
        if kind == "layer":
            self.bias = zero_param(shape, dtype)

    @jax.named_scope("norm")
    def __call__(self, x: Array) -> Array:
        x = x.astype(jnp.float32)
        if self.kind == "layer":
            x = x - x.mean(self.axes, keepdims=True)
        normed = x * jax.lax.rsqrt(jnp.square(x).mean(self.axes, keepdims=True) + self.epsilon)
        scale = self.scale[...].astype(jnp.float32)
        normed = normed * (1 + scale if self.kind == "rms_plus_one" else scale)
        return normed + self.bias[...].astype(jnp.float32) if self.kind == "layer" else normed


def make_norm(config: config_lib.DecoderConfig, dtype: jnp.dtype) -> Norm:
    """Return a normalisation of activations, of the model's kind."""
    return Norm((config.width,), config.norm, config.norm_epsilon, dtype)


class Attention(nnx.Module):
    """The projections of attention. The caller decides how tokens attend."""

    def __init__(self, config: config_lib.DecoderConfig, rngs: nnx.Rngs, dtype: jnp.dtype):
        width = config.width
        heads = config.num_heads
        kv_heads = config.num_kv_heads
        size = config.head_size
        self.q_kernel = normal_param(rngs, (width, heads, size), dtype)
        self.kv_kernel = normal_param(rngs, (width, 2, kv_heads, size), dtype)
        self.out_kernel = normal_param(rngs, (heads, size, width), dtype, _output_spread(config))
        self.has_bias = config.qkv_bias
        self.has_out_bias = config.out_bias
        self.has_norm = bool(config.qk_norm)
        if self.has_bias:
            self.q_bias = zero_param((heads, size), dtype)
            self.kv_bias = zero_param((2, kv_heads, size), dtype)
        if self.has_out_bias:
            self.out_bias = zero_param((width,), dtype)
        if self.has_norm:
            is_per_head = config.qk_norm == "head"
            kind = (config.norm, config.norm_epsilon, dtype)
            self.q_norm = Norm((size,) if is_per_head else (heads, size), *kind)
            self.k_norm = Norm((size,) if is_per_head else (kv_heads, size), *kind)

    @jax.named_scope("projections")
    def queries(self, x_BSD: Array, rotate: Rotate) -> Array:
        """Return queries [B, S, H, K] with their positions."""
        bias_HK = self.q_bias[...] if self.has_bias else None
        q_BSHK = _heads(x_BSD, self.q_kernel[...], bias_HK)
        if self.has_norm:
            q_BSHK = self.q_norm(q_BSHK).astype(x_BSD.dtype)
        return rotate(q_BSHK)

    @jax.named_scope("projections")
    def keys_and_values(self, x_BSD: Array, rotate: Rotate) -> tuple[Array, Array]:
        """Return keys with their positions, and values, each [B, S, G, K]."""
        kernel_DnGK = self.kv_kernel[...]  # n: keys, then values.
        bias_nGK = self.kv_bias[...] if self.has_bias else (None, None)
        k_BSGK = _heads(x_BSD, kernel_DnGK[:, 0], bias_nGK[0])
        v_BSGK = _heads(x_BSD, kernel_DnGK[:, 1], bias_nGK[1])
        if self.has_norm:
            k_BSGK = self.k_norm(k_BSGK).astype(x_BSD.dtype)
        return rotate(k_BSGK), v_BSGK

    @jax.named_scope("projections")
    def output(self, attended_BSHK: Array) -> Array:
        """Project the outputs of the heads, F = H · K numbers, to the model's width [B, S, D]."""
        kernel_HKD = self.out_kernel[...]
        kernel_FD = kernel_HKD.reshape(-1, kernel_HKD.shape[-1])
        out_BSD = attended_BSHK.reshape(*attended_BSHK.shape[:2], len(kernel_FD)) @ kernel_FD
        return out_BSD + self.out_bias[...] if self.has_out_bias else out_BSD


class MLP(nnx.Module):
    """Two dense layers with an activation between them. In a gated MLP the activated half multiplies the other half."""

    def __init__(self, config: config_lib.DecoderConfig, rngs: nnx.Rngs, dtype: jnp.dtype):
        width = config.width
        inner = (2, config.mlp_width) if config.gated_mlp else (config.mlp_width,)
        self.first = "gate_up" if config.gated_mlp else "up"
        self.activation = config.activation
        self.is_gated = config.gated_mlp
        self.has_bias = config.mlp_bias
        setattr(self, f"{self.first}_kernel", normal_param(rngs, (width, *inner), dtype))
        self.down_kernel = normal_param(rngs, (config.mlp_width, width), dtype, _output_spread(config))
        if self.has_bias:
            setattr(self, f"{self.first}_bias", zero_param(inner, dtype))
            self.down_bias = zero_param((width,), dtype)

    @jax.named_scope("mlp")
    def __call__(self, x_BSD: Array) -> Array:
        up = jnp.tensordot(x_BSD, getattr(self, f"{self.first}_kernel")[...], 1)  # [B, S, F], or [B, S, 2, F].
        up = up + getattr(self, f"{self.first}_bias")[...] if self.has_bias else up
        activate = ACTIVATIONS[self.activation]
        inner_BSF = activate(up[:, :, 0]) * up[:, :, 1] if self.is_gated else activate(up)
        out_BSD = inner_BSF @ self.down_kernel[...]
        return out_BSD + self.down_bias[...] if self.has_bias else out_BSD


class Block(nnx.Module):
    """A transformer block: attention, then MLP; with `parallel_residual` both have the same input."""

    def __init__(self, config: config_lib.DecoderConfig, rngs: nnx.Rngs, dtype: jnp.dtype):
        self.norm_positions = config.norm_positions
        self.is_parallel = config.parallel_residual
        self.attention = Attention(config, rngs, dtype)
        self.mlp = MLP(config, rngs, dtype)
        if config_lib.BEFORE in self.norm_positions or config_lib.AFTER in self.norm_positions:
            self.attention_norm = make_norm(config, dtype)
            self.mlp_norm = make_norm(config, dtype)
        if config_lib.BEFORE_BOTH in self.norm_positions:
            self.input_norm = make_norm(config, dtype)
        if config_lib.OUTPUT in self.norm_positions:
            self.attention_output_norm = make_norm(config, dtype)
            self.mlp_output_norm = make_norm(config, dtype)

    def __call__(
        self, x_BSD: Array, attend: Attend, rotate: Rotate = unrotated, dropout: Dropout = NO_DROPOUT
    ) -> tuple[Array, Array, Array]:
        """Run all tokens through the block. Return the output [B, S, D], the keys and the values [B, S, G, K]."""
        normed_BSD = self._before("attention", x_BSD)
        k_BSGK, v_BSGK = self.attention.keys_and_values(normed_BSD, rotate)
        attended_BSHK = attend(self.attention.queries(normed_BSD, rotate), k_BSGK, v_BSGK)
        return self._finish(x_BSD, attended_BSHK, dropout), k_BSGK, v_BSGK

    def at(self, x_1TD: Array, tokens_J: Array, attend: Attend, rotate: Rotate, rotate_J: Rotate) -> Array:
        """Return the block's output [1, J, D] for only `tokens_J`, with the keys and values of all tokens."""
        x_1JD = x_1TD[:, tokens_J]
        q_1JHK = self.attention.queries(self._before("attention", x_1JD), rotate_J)
        k_1TGK, v_1TGK = self.attention.keys_and_values(self._before("attention", x_1TD), rotate)
        return self._finish(x_1JD, attend(q_1JHK, k_1TGK, v_1TGK))

    def _finish(self, x: Array, attended: Array, dropout: Dropout = NO_DROPOUT) -> Array:
        """Return the block's output, given its input and the outputs of the heads."""
        projected = dropout.at(DROP_ATTENTION)(self.attention.output(attended))
        summed = x + self._normed(config_lib.OUTPUT, "attention_output_norm", projected)
        if not self.is_parallel:
            summed = self._normed(config_lib.AFTER, "attention_norm", summed)
        mlp = self.mlp(self._before("mlp", x if self.is_parallel else summed))
        output = self._normed(config_lib.OUTPUT, "mlp_output_norm", dropout.at(DROP_MLP)(mlp))
        return self._normed(config_lib.AFTER, "mlp_norm", summed + output)

    def _before(self, part: str, x: Array) -> Array:
        x = self._normed(config_lib.BEFORE_BOTH, "input_norm", x)
        return self._normed(config_lib.BEFORE, f"{part}_norm", x)

    def _normed(self, position: str, name: str, x: Array) -> Array:
        return getattr(self, name)(x).astype(x.dtype) if position in self.norm_positions else x


def stack_blocks(config: config_lib.DecoderConfig, rngs: nnx.Rngs, dtype: jnp.dtype) -> Block:
    """Return all blocks as one, whose weights have a leading axis L."""

    @nnx.split_rngs(splits=config.num_layers)
    @nnx.vmap(transform_metadata={nnx.PARTITION_NAME: None})
    def make(rngs: nnx.Rngs) -> Block:
        return Block(config, rngs, dtype)

    return make(rngs)
