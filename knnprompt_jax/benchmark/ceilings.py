"""What the device can do at most, measured: matrix products and memory bandwidth."""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from knnprompt_jax.benchmark import timing
from knnprompt_jax.models import config as config_lib

Array = jax.Array
PREFIX = "ceiling: "


class MatrixProducts:
    """Chains of two products, [T, D] by [D, F] by [F, D]: square ones and ones of the model's widths.

    The faster of the two is the peak. They are turns to be interleaved with what they are the ceiling of.
    """

    def __init__(
        self, dtype: jnp.dtype, side: int = 0, step_tokens: int = 0, config: config_lib.DecoderConfig | None = None
    ):
        """`side` is that of the square matrices (0: what suits the device).

        The model's widths are measured where its config is given, on `step_tokens` tokens at a time.
        """
        side = side or default_side()
        shapes = [(side, side, side)]
        if config:
            shapes.append((step_tokens, config.width, config.mlp_width))
        self._least_flops = 8 * side**3
        self._flops: dict[str, float] = {}
        self.turns: dict[str, timing.Turn] = {}
        for shape in shapes:
            self._add(*shape, dtype)

    def _add(self, tokens: int, width: int, hidden: int, dtype: jnp.dtype) -> None:
        name = f"{PREFIX}{tokens}×{width}×{hidden}"
        once = 4 * tokens * width * hidden
        length = max(1, min(1000, self._least_flops // once))
        draw = functools.partial(jax.random.normal, dtype=dtype)
        x_TD = draw(jax.random.key(0), (tokens, width))
        up_DF, down_FD = draw(jax.random.key(1), (width, hidden)), draw(jax.random.key(2), (hidden, width))
        # Scaled so that a chain neither overflows nor fades into denormal numbers, which are slow.
        weights = up_DF / width**0.5, down_FD / hidden**0.5
        self._flops[name] = once * length
        self.turns[name] = timing.stopwatch(lambda: _chain(x_TD, *weights, length=length))

    def peak(self, seconds: Mapping[str, float]) -> float:
        """FLOP/s of the faster shape, from the median seconds of `turns`."""
        return max(flops / seconds[name] for name, flops in self._flops.items())

    def at_widths(self, seconds: Mapping[str, float]) -> float:
        """FLOP/s of the model's widths, which must have been given."""
        return list(self.rates(seconds).values())[-1]

    def rates(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """FLOP/s by shape."""
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
