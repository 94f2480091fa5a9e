"""Compare `prefix_kernel` with XLA's attention on a small random case before a kind of device first uses it.

The reference has the same operands in float32 and full float32 products. Logits have a standard deviation of 3, the
queries' scale is a power of two, so that scaling is exact, and values lie in [-1, 1]. A kernel that omits or misplaces
keys then errs by about 1 somewhere.

- float32: products of three bfloat16 parts, or of two TF32 parts, err by at most 2^-21 of the sum of absolute terms.
  For heads of 256 that sum has a mean of 31 and is below 60. An error of δ in the logits changes a weighted mean of
  values by at most 2 δ, in the kernel and in the reference: 4 · 60 · 2^-21 < 2^-13. Operands rounded to TF32 would err
  by ten times as much.
- bfloat16: products of such operands are exact in float32. The weights of values are rounded, and so is the output: two
  relative errors of at most 2^-8.
"""

import functools
import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from knnprompt_jax.common import errors, parallel
from knnprompt_jax.models import attention
from knnprompt_jax.models import config as config_lib

Array = jax.Array
Arrays = tuple[Array, Array, Array, Array, Array, Array, Array]  # As `prefix_kernel.attend` takes them.
SWITCH = "KNNPROMPT_PREFIX_KERNEL"
ON, OFF, AUTO = CHOICES = ("on", "off", "auto")
TOLERANCE = {"float32": 2**-13, "bfloat16": 2**-7 + 2**-13}
# Two blocks of a TPU's keys, the second ragged; 11 rows fill no whole number of a TPU's blocks of queries.
_PREFIX = 1301
_LENGTH = 1283
_ROWS = 11
_WIDTHS = (61, 197)  # One part of a GPU's row, and several.
_KEY_HEADS = 3
_WINDOW = 173
_SCALE = 0.25


class Case(NamedTuple):
    """The values that decide which kernel a device compiles.

    Attributes:
        device: a device of this process.
        dtype: the dtype of queries, keys and values.
        head_size: the size of a head.
        heads_per_key: the number of query heads that share a key head.
        has_windows: whether some layers attend to a window of the prefix.
    """

    device: jax.Device
    dtype: str
    head_size: int
    heads_per_key: int
    has_windows: bool


def switch() -> str:
    """Return the value of KNNPROMPT_PREFIX_KERNEL; raise UserError if it is not allowed."""
    value = os.environ.get(SWITCH) or AUTO
    if value not in CHOICES:
        raise errors.UserError(f"{SWITCH}={value}: choose from {', '.join(CHOICES)}")
    return value


def is_expected(platform: str) -> bool:
    """Return whether a platform has a kernel that is not switched off, for estimates without a device."""
    return switch() != OFF and platform in attention.KERNEL_PLATFORMS


def is_trusted(mesh: jax.sharding.Mesh, config: config_lib.DecoderConfig, dtype: str) -> bool:
    """Return whether the devices of a mesh may use the kernel; every process of a job has the same answer.

    KNNPROMPT_PREFIX_KERNEL=on trusts it without a proof, off never uses it.

    Raises:
        UserError: KNNPROMPT_PREFIX_KERNEL has another value.
    """
    platform = mesh.devices.flat[0].platform
    if not is_expected(platform) or switch() == ON:
        return is_expected(platform)
    device = jax.local_devices(backend=platform)[0]
    heads_per_key = config.num_heads // config.num_kv_heads
    case = Case(device, dtype, config.head_size, heads_per_key, any(config.windows))
    return parallel.call_in_main(lambda: is_correct(case))


@functools.cache
def is_correct(case: Case) -> bool:
    """Return whether the kernel's outputs are those of XLA's attention; a wrong kernel is logged once per process."""
    allowed = TOLERANCE[case.dtype]
    try:
        found = deviation(case, case.device.platform)
        reason = f"its outputs differ by {found:.2g}, at most {allowed:.2g} is rounding" if found > allowed else ""
    except Exception as error:  # Whatever a compiler or a driver raises.
        reason = f"{type(error).__name__}: {errors.shortened(errors.one_line(error))[:300]}"
    if reason:
        logging.warning(
            "%s: the attention kernel for %s is not used, XLA's attention is: %s (%s=on would use it)",
            *(case.device.device_kind, case.dtype, reason, SWITCH),
        )
    return not reason


def deviation(case: Case, platform: str, interpret: bool = False) -> float:
    """Compile (or interpret) and run a platform's kernel, and return the largest deviation from XLA's attention.

    NaN and infinite outputs deviate infinitely.
    """
    cases = [(width, None) for width in _WIDTHS] + [(_WIDTHS[-1], _WINDOW)] * case.has_windows
    found = 0.0
    for width, window in cases:
        arrays = jax.device_put(_draw(case, width), case.device)
        with jax.default_matmul_precision("highest"):
            attended = _attend(arrays, window, platform, interpret)
            reference = _attend(arrays, window)
        difference = np.abs(np.asarray(attended, np.float32) - np.asarray(reference))
        found = max(found, float(difference[:, :-1].max()) if np.isfinite(difference).all() else np.inf)
    return found


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _attend(arrays: Arrays, window: int | None, platform: str = "", interpret: bool = False) -> Array:
    """Return the outputs of a platform's kernel; without a platform, those of XLA's attention in float32."""
    limit = None if window is None else jnp.int32(window)
    if platform:
        from knnprompt_jax.models import prefix_kernel  # Pallas takes half a second to import.

        return prefix_kernel.attend(*arrays, jnp.int32(_LENGTH), _SCALE, limit, platform, interpret)
    *rows, mask_BSS, positions_BS, k_GPK, v_GPK = arrays
    q_BSHK, k_BSGK, v_BSGK, k_GPK, v_GPK = (array.astype(jnp.float32) for array in (*rows, k_GPK, v_GPK))
    prefix = attention.Prefix(k_GPK, v_GPK, jnp.int32(_LENGTH))
    rule = attention.LogitRule(_SCALE, limit)
    return attention.shared_prefix_attention(
        q_BSHK, k_BSGK, v_BSGK, mask_BSS, positions_BS, prefix, rule, use_kernel=False
    )


def _draw(case: Case, width: int) -> list[np.ndarray]:
    """Return the arrays of `prefix_kernel.attend`; the last token of each row is padding."""
    rng = np.random.default_rng(0)
    dtype = jnp.dtype(case.dtype)
    size = case.head_size
    heads = _KEY_HEADS * case.heads_per_key
    q_BSHK = 3 / (_SCALE * size**0.5) * rng.normal(size=(_ROWS, width, heads, size))
    k_BSGK = rng.normal(size=(_ROWS, width, _KEY_HEADS, size))
    v_BSGK = rng.uniform(-1, 1, (_ROWS, width, _KEY_HEADS, size))
    k_GPK = rng.normal(size=(_KEY_HEADS, _PREFIX, size))
    v_GPK = rng.uniform(-1, 1, (_KEY_HEADS, _PREFIX, size))
    mask_BSS = np.tril(rng.random((_ROWS, width, width)) < 0.5) | np.eye(width, dtype=bool)
    mask_BSS[:, -1] = False
    positions_BS = rng.integers(_LENGTH, _LENGTH + width, (_ROWS, width)).astype(np.int32)
    row = [array.astype(dtype) for array in (q_BSHK, k_BSGK, v_BSGK)]
    return [*row, mask_BSS, positions_BS, k_GPK.astype(dtype), v_GPK.astype(dtype)]
