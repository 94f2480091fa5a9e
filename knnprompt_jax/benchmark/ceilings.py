"""What the device can do at most, measured: matrix products and memory bandwidth."""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from knnprompt_jax.benchmark import timing

Array = jax.Array
PREFIX = "ceiling: "


class MatrixProducts:
    """Chains of two products, [T, D] by [D, F] by [F, D]: `turns` to be interleaved with what they are the ceiling of."""

    def __init__(self, dtype: jnp.dtype, side: int, *of_model: tuple[int, int, int]):
        """Square products of a side (0: what suits the device), and those of the model's T, D and F."""
        side = side or default_side()
        self._flops: dict[str, float] = {}
        self.turns: dict[str, timing.Turn] = {}
        for tokens, width, hidden in ((side, side, side), *of_model):
            name = f"{PREFIX}{tokens}×{width}×{hidden}"
            once = 4 * tokens * width * hidden
            length = max(1, min(1000, 8 * side**3 // once))
            draw = functools.partial(jax.random.normal, dtype=dtype)
            x_TD = draw(jax.random.key(0), (tokens, width))
            # Scaled so that a chain neither overflows nor fades into denormal numbers, which are slow.
            up_DF = draw(jax.random.key(1), (width, hidden)) / width**0.5
            down_FD = draw(jax.random.key(2), (hidden, width)) / hidden**0.5
            self._flops[name] = once * length
            self.turns[name] = timing.stopwatch(functools.partial(_chain, x_TD, up_DF, down_FD, length=length))

    def rates(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """FLOP/s by shape, the square one first, from the median seconds of `turns`."""
        return {name.removeprefix(PREFIX): flops / seconds[name] for name, flops in self._flops.items()}


def default_side() -> int:
    return 2048 if jax.default_backend() == "cpu" else 8192


def bandwidth(side: int, repetitions: int) -> float:
    """Bytes per second, the better of reading a large array (4 side · 4 side numbers) and of reading and writing it."""
    side = side or default_side()
    array = jnp.ones((4 * side, 4 * side))
    turns = {"read": timing.stopwatch(lambda: jnp.sum(array)), "copy": timing.stopwatch(lambda: -array)}
    seconds = timing.medians(turns, repetitions)
    return max(array.nbytes / seconds["read"], 2 * array.nbytes / seconds["copy"])


@functools.partial(jax.jit, static_argnames="length")
def _chain(x_TD: Array, up_DF: Array, down_FD: Array, length: int) -> Array:
    def body(x_TD: Array, _: None) -> tuple[Array, None]:
        with jax.default_matmul_precision("highest"):
            return (x_TD @ up_DF) @ down_FD, None

    return jax.lax.scan(body, x_TD, None, length=length)[0]
