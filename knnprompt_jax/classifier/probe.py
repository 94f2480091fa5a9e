"""A linear probe of hidden states whose leave-one-out predictions are exact and cheap: ridge regression of the classes.

Each dimension of the states is standardised over the anchors and divided by √E, so that rows x have a mean square norm of 1 and a penalty
means the same for every model. With X the rows [N, E], Y the classes as ones and zeros less the classes' shares, and X Xᵀ = U S Uᵀ,
fitted scores are F = U S (S + λ)⁻¹ Uᵀ Y, and those of anchor i by all others, which have means of their own, are

    y_i − (y_i − f_i) / (1 − h_ii),    h_ii = 1/N + Σ_j U_ij² S_j / (S_j + λ)    (Allen's PRESS, 1974).
"""

import dataclasses
import functools

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Probe:
    """Scores of classes, linear in the hidden state: about 1 for the class of a text and 0 for all others, less the classes' shares."""

    mean_E: np.ndarray
    scale_E: np.ndarray
    weights_EC: np.ndarray

    def scores(self, hidden_QE: np.ndarray) -> np.ndarray:
        """Of every class [Q, C]."""
        return (np.asarray(hidden_QE, np.float64) - self.mean_E) / self.scale_E @ self.weights_EC


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Anchors to fit a probe on: hidden states [N, E], their classes [N] and the number of classes."""

    hidden_NE: np.ndarray
    y_N: np.ndarray
    num_classes: int

    def fit(self, penalty: float) -> Probe:
        """The probe with this penalty, by the smaller of N and E equations."""
        x_NE, y_NC = self._x_NE, self._y_NC
        if len(x_NE) <= x_NE.shape[1]:
            dual_NC = np.linalg.solve(x_NE @ x_NE.T + penalty * np.eye(len(x_NE)), y_NC)
            weights_EC = x_NE.T @ dual_NC
        else:
            weights_EC = np.linalg.solve(x_NE.T @ x_NE + penalty * np.eye(x_NE.shape[1]), x_NE.T @ y_NC)
        return Probe(*self._scaling, weights_EC)

    def left_out(self, penalty: float) -> np.ndarray:
        """The scores of each anchor [N, C] by a probe of all others."""
        x_NE, count = self._x_NE, len(self.y_N)
        if count <= x_NE.shape[1]:
            eigenvalues_N, vectors_NN = self._spectrum
            kept_N = eigenvalues_N / (eigenvalues_N + penalty)
            fitted_NC = vectors_NN @ (kept_N[:, None] * (vectors_NN.T @ self._y_NC))
            leverage_N1 = (1 / count + vectors_NN**2 @ kept_N)[:, None]
        else:
            solved_EN = np.linalg.solve(x_NE.T @ x_NE + penalty * np.eye(x_NE.shape[1]), x_NE.T)
            fitted_NC = x_NE @ (solved_EN @ self._y_NC)
            leverage_N1 = (1 / count + (x_NE * solved_EN.T).sum(-1))[:, None]
        return self._y_NC - (self._y_NC - fitted_NC) / (1 - leverage_N1)

    @functools.cached_property
    def _scaling(self) -> tuple[np.ndarray, np.ndarray]:
        hidden_NE = np.asarray(self.hidden_NE, np.float64)
        deviation_E = hidden_NE.std(0)
        return hidden_NE.mean(0), np.where(deviation_E > 0, deviation_E, 1.0) * np.sqrt(len(deviation_E))

    @functools.cached_property
    def _x_NE(self) -> np.ndarray:
        mean_E, scale_E = self._scaling
        return (np.asarray(self.hidden_NE, np.float64) - mean_E) / scale_E

    @functools.cached_property
    def _spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        eigenvalues_N, vectors_NN = np.linalg.eigh(self._x_NE @ self._x_NE.T)
        return eigenvalues_N.clip(0), vectors_NN

    @functools.cached_property
    def _y_NC(self) -> np.ndarray:
        y_NC = np.eye(self.num_classes)[self.y_N]
        return y_NC - y_NC.mean(0)
