"""Methods on hidden states of the last layer: the nearest class mean and a linear probe.

Hidden Calibration: Cho, Sakai, Kato, Tanaka, Ishii, Inoue: "Token-based Decision Criteria Are Suboptimal in In-context
Learning", 2024 (NAACL 2025), Section 3: centroids of the last token's last hidden states, Euclidean distance.

Linear probe: logistic regression on standardised hidden states or log-probabilities of the anchors.

On hidden states it is that of PALP (Cho, Kim, Kim, Park, Lee, Lee: "Prompt-Augmented Linear Probing", AAAI 2023). On
the next-token distribution it is that of FADS-ICL (Li et al., ACL 2024). Both read a prompt with its demonstrations.

The V log-probabilities are an affine function of E + 1 numbers, log p(v) = a_v · φ with a_v = (w_v, −1), φ = (h, log
Z). Ridge-penalised regression depends only on the inner products of its inputs. Those of standardised
log-probabilities, Σ_v a_v·φ a_v·φ' / σ_v², are the inner products of R φ for any R with RᵀR = Σ_v a_v a_vᵀ / σ_v². So E
+ 1 inputs per row give exactly the probe on V, and no array of size N · V is made. Inputs are divided by the square
root of their number, E or V. Their mean square norm is then 1, and a penalty means the same for both.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial import distance

from knnprompt_jax.common.options import Options, option
from knnprompt_jax.inference import lm
from knnprompt_jax.methods import method
from knnprompt_jax.models import head as head_lib


class ProbeOptions(Options):
    """Options of the probe.

    Its penalty is about scikit-learn's default on standardised inputs as wide as GPT-2's states.
    """

    representation: str = option("hidden", "Inputs of the regression.", choices=("hidden", "log_probabilities"))
    inverse_penalty: float = option(1000.0, "scikit-learn's C, on inputs whose mean square norm is 1.", least=1e-6)


def logistic_regression(
    x_NF: Any, y: np.ndarray, x_QF: Any, num_classes: int, inverse_penalty: float, **further: Any
) -> np.ndarray:
    """Fit scikit-learn's ridge-penalised logistic regression and return class probabilities [Q, C].

    A class without rows has probability 0.

    Args:
        x_NF: features of the train rows, possibly sparse.
        y: class indices of the train rows.
        x_QF: features of the queries, possibly sparse.
        num_classes: the number of classes C.
        inverse_penalty: scikit-learn's C.
        further: further arguments of `LogisticRegression`.
    """
    from sklearn import linear_model

    present, y = np.unique(y, return_inverse=True)
    p_QC = np.zeros((x_QF.shape[0], num_classes))
    if len(present) == 1:
        p_QC[:, present] = 1.0
    else:
        regression = linear_model.LogisticRegression(C=inverse_penalty, tol=1e-6, **further)
        p_QC[:, present] = regression.fit(x_NF, y).predict_proba(x_QF)
    return p_QC


def predict_by_probe(inputs: method.Inputs, options: ProbeOptions) -> method.Prediction:
    """Fit the probe on the anchors and predict the queries."""
    anchors_NE = _inputs(inputs.model.head, inputs.states[method.ANCHORS], options.representation)
    queries_QE = _inputs(inputs.model.head, inputs.states[method.QUERIES], options.representation)
    mean_E = anchors_NE.mean(0)
    scale_EE = _scale(inputs.model.head, anchors_NE - mean_E, options.representation)
    p_QC = logistic_regression(
        (anchors_NE - mean_E) @ scale_EE.T,
        inputs.y,
        (queries_QE - mean_E) @ scale_EE.T,
        inputs.num_classes,
        options.inverse_penalty,
        # Fewer rows than inputs make the problem ill-conditioned: ten Newton steps replace thousands of L-BFGS.
        solver="newton-cg",
    )
    return method.Prediction.from_probabilities(p_QC)


def _inputs(head: head_lib.Head, states: lm.States, representation: str) -> np.ndarray:
    """Return φ in float64: hidden states, followed by log Z for log-probabilities."""
    hidden_NE = np.asarray(states.hidden_NE, np.float64)
    if representation == "hidden":
        return hidden_NE
    # The head's mean row changes no distribution; without it, log Z is small and the sum over V is well scaled.
    mean_row_E = np.asarray(head.rows_VE.mean(0, dtype=jnp.float32), np.float64)
    log_z_N = np.asarray(states.log_z_N, np.float64) - hidden_NE @ mean_row_E
    return np.column_stack([hidden_NE, log_z_N])


def _scale(head: head_lib.Head, centred_NE: np.ndarray, representation: str) -> np.ndarray:
    """Return R, the matrix that standardises centred inputs and divides them by the square root of their number."""
    if representation == "hidden":
        deviation_E = centred_NE.std(0)
        return np.diag(1 / np.where(deviation_E > 0, deviation_E, 1.0)) / np.sqrt(len(deviation_E))
    covariance_EE = centred_NE.T @ centred_NE / len(centred_NE)
    product_EE = np.asarray(_standardised_product(head, jnp.asarray(covariance_EE, jnp.float32)), np.float64)
    eigenvalues_E, vectors_EE = np.linalg.eigh(product_EE)
    return np.sqrt(eigenvalues_E.clip(0) / len(head))[:, None] * vectors_EE.T


@jax.jit
def _standardised_product(head: head_lib.Head, covariance_EE: jax.Array) -> jax.Array:
    """Return Σ_v a_v a_vᵀ / σ_v² [E + 1, E + 1], with σ_v² = a_vᵀ S a_v the variance of log p(v) over the anchors."""
    with jax.default_matmul_precision("highest"):
        rows_VE = head.rows_VE.astype(jnp.float32)
        a_VE = jnp.column_stack([rows_VE - rows_VE.mean(0), -jnp.ones(len(rows_VE))])
        variance_V = ((a_VE @ covariance_EE) * a_VE).sum(-1)
        a_VE = a_VE / jnp.sqrt(jnp.where(variance_V > 0, variance_V, 1.0))[:, None]
        return a_VE.T @ a_VE


def predict_by_centroids(inputs: method.Inputs, _: Options) -> method.Prediction:
    """Predict the class with the nearest mean hidden state.

    As released, probabilities are the softmax of the negative Euclidean distances; a class without anchors has 0.
    """
    anchors_NE = np.asarray(inputs.states[method.ANCHORS].hidden_NE, np.float64)
    queries_QE = np.asarray(inputs.states[method.QUERIES].hidden_NE, np.float64)
    y = inputs.y
    centroids_CE = np.full((inputs.num_classes, anchors_NE.shape[1]), np.inf)
    for label in np.unique(y):
        centroids_CE[label] = anchors_NE[y == label].mean(0)
    return method.Prediction.from_scores(-distance.cdist(queries_QE, centroids_CE))


_PROBE = method.Method(
    "linear_probe", "Linear probe, last layer", predict_by_probe, ProbeOptions, needs=(method.QUERIES, method.ANCHORS)
)
METHODS = (
    method.Method(
        "hidden_centroids", "Hidden Calibration", predict_by_centroids, needs=(method.QUERIES, method.ANCHORS)
    ),
    _PROBE,
    _PROBE.variant("linear_probe_log_p", "Linear probe, log-probabilities", representation="log_probabilities"),
)
