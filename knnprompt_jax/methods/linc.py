"""LinC: an affine map of the label words' probabilities, learned on a few labelled rows.

Abbas, Zhou, Ram, Baracaldo, Samulowitz, Salonidis, Chen: "Enhancing In-context Learning via Linear Probe Calibration",
AISTATS 2024: softmax(A p + b), by stochastic gradient descent on the cross-entropy, one row at a time. As in the released
code, A starts as contextual calibration's diag(p_cf)⁻¹ and b as 0, and the rows are at most 100. The source tunes the
learning rate (0.00045 … 0.15) and the epochs (15 … 50) for each task; the defaults are those of its example, SST2.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import special

from knnprompt_jax import lm, options
from knnprompt_jax.methods import base, contextual_calibration, method
from knnprompt_jax.models import head as head_lib


@dataclasses.dataclass(frozen=True)
class Settings(options.Options):
    """Options of LinC."""

    epochs: int = options.option(15, "How often each row is learned from.", least=1)
    learning_rate: float = options.option(0.015, "Of the gradient descent.", least=0)
    rows: int = options.option(100, "The most anchors to learn from.", least=1)


class LinearProbeCalibration(base.LabelWordClassifier):
    """argmax of A p + b, with p normalised over the label words."""

    def __init__(
        self, head: head_lib.Head, label_ids: Sequence[int], content_free: lm.States, settings: Settings, seed: int = 0
    ):
        """`content_free` are the states of content-free queries after the same demonstrations."""
        super().__init__(head, label_ids)
        self.content_free, self.settings, self.seed = content_free, settings, seed

    def fit(self, states: lm.States, y: np.ndarray) -> "LinearProbeCalibration":
        """Learns from the first `rows` anchors, which a split holds in random order."""
        settings = self.settings
        p_NC = self._probabilities(states[: settings.rows])
        bias_C = contextual_calibration.log_bias(self.label_log_probabilities(self.content_free))
        start = (jnp.diag(jnp.asarray(np.exp(-bias_C), jnp.float32)), jnp.zeros(len(self.classes_)))
        generator = np.random.default_rng(self.seed)
        order = np.concatenate([generator.permutation(len(p_NC)) for _ in range(settings.epochs)])
        self.slope_CC, self.shift_C = map(
            np.asarray, _descend(start, p_NC[order], np.asarray(y, np.int32)[order], settings.learning_rate)
        )
        return self

    def predict_proba(self, states: lm.States) -> np.ndarray:
        return special.softmax(self._probabilities(states) @ self.slope_CC.T + self.shift_C, axis=-1)

    def _probabilities(self, states: lm.States) -> np.ndarray:
        return special.softmax(self.label_log_probabilities(states), axis=-1).astype(np.float32)


def fitted(context: method.Context, settings: Settings) -> LinearProbeCalibration:
    content_free = context.states[contextual_calibration.content_free_queries]
    classifier = LinearProbeCalibration(context.head, context.label_ids, content_free, settings, context.seed)
    return classifier.fit(context.states[method.anchors], context.y)


@jax.jit
def _descend(
    start: tuple[jax.Array, jax.Array], p_TC: jax.Array, y_T: jax.Array, learning_rate: float
) -> tuple[jax.Array, jax.Array]:
    """One gradient step per row, in the order given."""
    optimizer = optax.sgd(learning_rate)

    def loss(map_: tuple[jax.Array, jax.Array], p_C: jax.Array, label: jax.Array) -> jax.Array:
        slope_CC, shift_C = map_
        return optax.softmax_cross_entropy_with_integer_labels(slope_CC @ p_C + shift_C, label)

    def step(map_: tuple[jax.Array, jax.Array], row: tuple[jax.Array, jax.Array]) -> tuple[tuple, None]:
        updates, _ = optimizer.update(jax.grad(loss)(map_, *row), optimizer.init(map_))
        return optax.apply_updates(map_, updates), None

    with jax.default_matmul_precision("highest"):
        return jax.lax.scan(step, start, (p_TC, y_T))[0]


METHODS = (
    method.on_states(
        "linc",
        "LinC",
        fitted,
        Settings,
        source="Abbas et al., AISTATS 2024",
        needs=(method.anchors, contextual_calibration.content_free_queries),
        check=method.label_words_are_tokens,
        look=3,
    ),
)
