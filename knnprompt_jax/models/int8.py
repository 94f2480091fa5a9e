"""Kernels of matrix products in 8 bits: integers from -127 to 127 with a float32 scale per output channel.

A product reads scale · integer, rounded to the dtype of its activations; the compiler computes it while reading the integers. This
takes half the memory of bfloat16, for a relative error of up to 1/254 of the largest weight of each channel.
"""

import jax
import jax.numpy as jnp

Array = jax.Array
_LARGEST = 127


def quantise(kernel: Array, inputs: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the integers and the scales; scales have size 1 along the axes `inputs`, over which the product sums."""
    kernel = kernel.astype(jnp.float32)
    scale = abs(kernel).max(inputs, keepdims=True) / _LARGEST
    return jnp.round(kernel / jnp.where(scale > 0, scale, 1)).astype(jnp.int8), scale


def restore(integers: Array, scale: Array, dtype: jnp.dtype) -> Array:
    """Return the kernel as `dtype`."""
    return (integers.astype(jnp.float32) * scale).astype(dtype)
