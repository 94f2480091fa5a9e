"""A linear probe: logistic regression on standardised hidden states or log-probabilities of the anchors.

On hidden states it is that of PALP (Cho, Kim, Kim, Park, Lee, Lee: "Prompt-Augmented Linear Probing", AAAI 2023), on the
next-token distribution that of FADS-ICL (Li et al., ACL 2024); both read a prompt with its demonstrations.

The V log-probabilities are an affine function of E + 1 numbers, log p(v) = a_v · φ with a_v = (w_v, −1), φ = (h, log Z).
Ridge-penalised regression sees its inputs through their inner products alone, and those of standardised log-probabilities,
Σ_v a_v·φ a_v·φ' / σ_v², are the inner products of R φ for any R with RᵀR = Σ_v a_v a_vᵀ / σ_v². So E + 1 inputs per row give
exactly the probe on V, and no array of size N · V is made. Inputs are divided by the square root of their number, E or V,
so that their mean square norm is 1 and a penalty means the same for both.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax import errors, lm, options
from knnprompt_jax.methods import base, method
from knnprompt_jax.models import head as head_lib

REPRESENTATIONS = ("hidden", "log_probabilities")


@dataclasses.dataclass(frozen=True)
class Settings(options.Options):
    """Options of the probe. Its penalty is about scikit-learn's default on standardised inputs as wide as GPT-2's states."""

    representation: str = options.option("hidden", "What is read of the anchors.", choices=REPRESENTATIONS)
    inverse_penalty: float = options.option(
        1000.0, "scikit-learn's C, on inputs whose mean square norm is 1.", least=1e-6
    )


class LinearProbe(base.StateClassifier):
    """Multinomial logistic regression with a ridge penalty; a class without anchors is never predicted."""

    def __init__(self, head: head_lib.Head, num_classes: int, settings: Settings):
        """Raises UserError where log-probabilities are wanted of a head that caps its logits."""
        _check_linear(settings.representation, head.cap)
        self.head, self.representation, self.classes_ = head, settings.representation, np.arange(num_classes)
        # Fewer rows than inputs make the problem ill-conditioned: ten Newton steps do what thousands of L-BFGS do.
        self.regression = base.RidgeRegression(num_classes, settings.inverse_penalty, solver="newton-cg")

    def fit(self, states: lm.States, y: np.ndarray) -> "LinearProbe":
        inputs_NE = self._inputs(states)
        self.mean_E = inputs_NE.mean(0)
        self.scale_EE = self._scale(inputs_NE - self.mean_E)
        self.regression.fit(self._standardise(inputs_NE), y)
        return self

    def predict_proba(self, states: lm.States) -> np.ndarray:
        return self.regression.predict_proba(self._standardise(self._inputs(states)))

    def _inputs(self, states: lm.States) -> np.ndarray:
        """Hidden states, with the log-partition where log-probabilities are wanted; float64."""
        hidden_NE = np.asarray(states.hidden_NE, np.float64)
        if self.representation == "hidden":
            return hidden_NE
        # The head's mean row changes no distribution; without it, log Z is small and what is summed over V is well scaled.
        mean_row_E = np.asarray(self.head.rows_VE.mean(0, dtype=jnp.float32), np.float64)
        log_z_N = np.asarray(states.log_z_N, np.float64) - hidden_NE @ mean_row_E
        return np.column_stack([hidden_NE, log_z_N])

    def _scale(self, centred_NE: np.ndarray) -> np.ndarray:
        """R: what centred inputs are multiplied by to be standardised, and divided by the square root of their number."""
        if self.representation == "hidden":
            deviation_E = centred_NE.std(0)
            return np.diag(1 / np.where(deviation_E > 0, deviation_E, 1.0)) / np.sqrt(len(deviation_E))
        covariance_EE = centred_NE.T @ centred_NE / len(centred_NE)
        product_EE = np.asarray(_standardised_product(self.head, jnp.asarray(covariance_EE, jnp.float32)), np.float64)
        eigenvalues_E, vectors_EE = np.linalg.eigh(product_EE)
        return np.sqrt(eigenvalues_E.clip(0) / len(self.head))[:, None] * vectors_EE.T

    def _standardise(self, inputs_NE: np.ndarray) -> np.ndarray:
        return (inputs_NE - self.mean_E) @ self.scale_EE.T


def fitted(context: method.Context, settings: Settings) -> LinearProbe:
    classifier = LinearProbe(context.head, context.num_classes, settings)
    return classifier.fit(context.states[method.anchors], context.y)


def prepare(problem: method.Problem, settings: Settings) -> None:
    """Raises UserError on a representation that the model does not allow."""
    _check_linear(settings.representation, problem.logit_cap)


def _check_linear(representation: str, cap: float | None) -> None:
    if representation == "log_probabilities" and cap is not None:
        raise errors.UserError(
            f"representation={representation!r}: this model caps its logits at {cap:g}, so that they are no linear "
            "function of states; choose representation='hidden'"
        )


@jax.jit
def _standardised_product(head: head_lib.Head, covariance_EE: jax.Array) -> jax.Array:
    """Σ_v a_v a_vᵀ / σ_v² [E + 1, E + 1], with σ_v² = a_vᵀ S a_v the variance of log p(v) over the anchors."""
    with jax.default_matmul_precision("highest"):
        rows_VE = head.rows_VE.astype(jnp.float32)
        a_VE = jnp.column_stack([rows_VE - rows_VE.mean(0), -jnp.ones(len(rows_VE))])
        variance_V = ((a_VE @ covariance_EE) * a_VE).sum(-1)
        a_VE = a_VE / jnp.sqrt(jnp.where(variance_V > 0, variance_V, 1.0))[:, None]
        return a_VE.T @ a_VE


_declare = functools.partial(method.on_states, fitted=fitted, needs=(method.anchors,), prepare=prepare)
METHODS = (
    _declare(
        "linear_probe",
        "Linear probe, hidden states",
        settings=Settings,
        source="PALP: Cho et al., AAAI 2023",
        look=4,
    ),
    _declare(
        "linear_probe_log_p",
        "Linear probe, log-probabilities",
        settings=method.with_defaults(Settings, representation="log_probabilities"),
        source="FADS-ICL: Li et al., ACL 2024",
        check=lambda problem: _check_linear("log_probabilities", problem.logit_cap),
        look=5,
    ),
)
