"""Rules: votes of nearest anchors, a linear probe of states, or a blend of both, with calibrated probabilities.

The probe is ridge regression of the classes, whose leave-one-out predictions are exact and cheap. Each of the F inputs
is standardised over the anchors and divided by √F. Rows x then have a mean square norm of 1, and a penalty means the
same for every model.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from knnprompt_jax import distances, lm, options
from knnprompt_jax.settings.classifiers import RULES, USED_BY, WEIGHTS

_NEWTON_STEPS = 12
_DAMPING = 1e-6
_MIN_PRIOR = 1e-300


class Rule(options.Options):
    """All settings of a rule. A probe keeps the best settings of votes too, so that `kneighbors` still works."""

    rule: str = options.option("votes", "What classifies.", choices=RULES)
    demo_shots: int = options.option(0, "Demonstrations per class.", least=0)
    k: int = options.option(1, "Neighbours that vote.", least=1)
    distance: str = options.option("kl", "Distance to the anchors.", choices=distances.DISTANCES)
    weights: str = options.option("uniform", "Weights of the votes.", choices=WEIGHTS)
    bandwidth: float = options.option(0.0, "Distance over which a vote decays by 1/e; 0: no decay.", least=0)
    penalty: float = options.option(1.0, "Ridge penalty of the probe.", least=0)
    layer: int = options.option(0, "Block whose output the probe reads beside the state; 0: none.", least=0)
    vote_count: float = options.option(1.0, "Factor of the votes' scores.", least=0)
    probe_count: float = options.option(0.0, "Factor of the probe's scores.", least=0)

    @property
    def named(self) -> dict[str, Any]:
        """The settings that matter to this rule, as arguments of a classifier, without `demo_shots`."""
        return {name: getattr(self, name) for name in ("rule", *USED_BY[self.rule])}

    @property
    def layers(self) -> tuple[int, ...]:
        """The blocks whose outputs the rule reads."""
        return (self.layer,) if self.layer else ()

    @property
    def words(self) -> str:
        """The settings that matter to this rule, in one line."""
        values = {**self.named, "demo_shots": self.demo_shots}
        return ", ".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in values.items()
        )


@dataclasses.dataclass(frozen=True, eq=False)
class FittedRule:
    """A rule fitted to anchors: their classes `present_P`, the share of each, and the probe."""

    rule: Rule
    num_classes: int
    present_P: np.ndarray
    shares_P: np.ndarray
    probe: "Probe | None"

    @classmethod
    def fit(cls, rule: Rule, inputs_NF: np.ndarray | None, y_N: np.ndarray, num_classes: int) -> Self:
        """Fit the rule to N anchors of classes `y_N`; `inputs_NF`, from `probe_inputs`, are not needed for votes."""
        present_P, y_N, counts_P = np.unique(y_N, return_inverse=True, return_counts=True)
        probe = None
        if rule.rule != "votes":
            assert inputs_NF is not None
            probe = fit_probe(inputs_NF, y_N, rule.penalty)
        return cls(rule, num_classes, present_P, counts_P / len(y_N), probe)

    def probabilities(
        self,
        classes_Qk: np.ndarray,
        distances_Qk: np.ndarray,
        inputs_QF: np.ndarray,
        y_Q: np.ndarray | None = None,
        prior_C: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the probability of every class [Q, C]; a class without anchors has 0.

        Args:
            classes_Qk, distances_Qk: of each text's neighbours, nearest first.
            inputs_QF: what a probe reads of each text, from `probe_inputs`.
            y_Q: the classes of the texts if they are the anchors, each of which is then read by a probe of all others.
            prior_C: the share of each class among the texts; by default its share of the anchors.
        """
        rule = self.rule
        scores = []
        counts = []
        if rule.rule != "probe":
            compact_Qk = np.searchsorted(self.present_P, classes_Qk)
            scores.append(vote_scores(compact_Qk, np.asarray(distances_Qk, float), self.shares_P, rule.bandwidth))
            counts.append(rule.vote_count)
        if self.probe:
            if y_Q is not None:
                scores += [*left_out_scores(inputs_QF, np.searchsorted(self.present_P, y_Q), [rule.penalty])]
            else:
                scores.append(self.probe.predict(inputs_QF))
            counts.append(rule.probe_count)
        p_QP = probabilities(scores, counts, self.shares_P)
        if prior_C is not None:
            p_QP *= np.maximum(prior_C[self.present_P], _MIN_PRIOR) / self.shares_P
            p_QP /= p_QP.sum(-1, keepdims=True)
        p_QC = np.zeros((len(p_QP), self.num_classes))
        p_QC[:, self.present_P] = p_QP
        return p_QC


def probe_inputs(states: lm.States, layer: int) -> np.ndarray:
    """Return a probe's inputs for each text [N, F]: its hidden state, and a block's output unless `layer` is 0."""
    hidden_NE = np.asarray(states.hidden_NE)
    return np.concatenate([hidden_NE, np.asarray(states.layers[layer])], -1) if layer else hidden_NE


def vote_scores(
    classes_Qk: np.ndarray, distances_Qk: np.ndarray, shares_C: np.ndarray, bandwidth: float = 0.0
) -> np.ndarray:
    """Return log (share of the vote / share of the anchors) [Q, C], after one more vote split by the anchors' shares.

    A neighbour's vote counts exp(−(d − d₁) / bandwidth), with d₁ the distance of the nearest, or 1 where `bandwidth` is
    0.

    Args:
        classes_Qk: of the neighbours, nearest first.
        distances_Qk: of the neighbours; infinite where there are fewer than k.
        shares_C: the classes' shares of the anchors, each above 0.
    """
    present_Qk = np.isfinite(distances_Qk)
    further_Qk = np.where(present_Qk, distances_Qk - distances_Qk[:, :1], 0)
    weights_Qk = present_Qk * (np.exp(-further_Qk / bandwidth) if bandwidth else 1.0)
    votes_QC = np.zeros((len(classes_Qk), len(shares_C)))
    np.add.at(votes_QC, (np.arange(len(classes_Qk))[:, None], classes_Qk), weights_Qk)
    return np.log((votes_QC / shares_C + 1) / (votes_QC.sum(-1, keepdims=True) + 1))


def probabilities(
    scores: Sequence[np.ndarray], counts: Sequence[float] | np.ndarray, shares_C: np.ndarray
) -> np.ndarray:
    """Return softmax(log share + Σ_j count_j · score_j) [Q, C]."""
    logits_QC = np.log(shares_C) + np.tensordot(np.array(counts), np.stack(scores), 1)
    p_QC = np.exp(logits_QC - logits_QC.max(-1, keepdims=True, initial=-np.inf))
    return p_QC / p_QC.sum(-1, keepdims=True)


def fit_counts(scores: Sequence[np.ndarray], y_N: np.ndarray, shares_C: np.ndarray) -> tuple[float, ...]:
    """Return the counts ≥ 0 with the least log loss of N anchors, whose scores [N, C] come from the other anchors.

    An anchor's class is true with probability (N + 1) / (N + 2), as in Platt scaling. So scores that are right for
    every one of a few anchors give no certainty.
    """
    score_JNC = np.stack(scores)
    count = len(y_N)
    truth_NC = np.tile(shares_C / (count + 2), (count, 1))
    truth_NC[np.arange(count), y_N] += (count + 1) / (count + 2)
    counts_J = np.ones(len(score_JNC))
    for _ in range(_NEWTON_STEPS):  # The log loss is convex in the counts.
        p_NC = probabilities(scores, counts_J, shares_C)
        slope_J = np.einsum("nc,jnc->j", p_NC - truth_NC, score_JNC) / count
        from_mean_JNC = score_JNC - np.einsum("nc,jnc->jn", p_NC, score_JNC)[:, :, None]
        curvature_JJ = np.einsum("nc,inc,jnc->ij", p_NC, from_mean_JNC, from_mean_JNC) / count
        step_J = np.linalg.solve(curvature_JJ + _DAMPING * np.eye(len(counts_J)), -slope_J)
        # A full step would overshoot where probabilities are near 0 or 1.
        counts_J = (counts_J + np.clip(step_J, -0.5 * counts_J - 0.1, counts_J + 0.5)).clip(0)
    return tuple(counts_J.tolist())


@dataclasses.dataclass(frozen=True, eq=False)
class Probe:
    """Ridge regression of standardised inputs: the mean and scale of each input, and weights [F, C]."""

    mean_F: np.ndarray
    scale_F: np.ndarray
    weights_FC: np.ndarray

    def predict(self, inputs_QF: np.ndarray) -> np.ndarray:
        """Return scores [Q, C]."""
        return (np.asarray(inputs_QF, float) - self.mean_F) / self.scale_F @ self.weights_FC


def fit_probe(inputs_NF: np.ndarray, y_N: np.ndarray, penalty: float) -> Probe:
    """Fit a probe to what it reads of N anchors (`probe_inputs`) and their classes, numbered from 0.

    It predicts a score [N, C] of about 1 for a text's class and 0 for others, less the classes' shares.
    """
    # NumPy instead of scikit-learn, whose import takes longer than the prediction of a text.
    inputs_NF = np.asarray(inputs_NF, float)
    mean_F = inputs_NF.mean(0)
    scale_F = inputs_NF.std(0)
    scale_F[scale_F <= len(inputs_NF) * np.finfo(float).eps * np.abs(mean_F)] = 1  # A constant, up to rounding.
    x_NF = (inputs_NF - mean_F) / scale_F
    alpha = penalty * x_NF.shape[1]  # Rows are not divided by √F.
    if len(x_NF) < x_NF.shape[1]:
        kernel_NN = x_NF @ x_NF.T + alpha * np.eye(len(x_NF))
        weights_FC = x_NF.T @ np.linalg.solve(kernel_NN, _truth(y_N))
    else:
        kernel_FF = x_NF.T @ x_NF + alpha * np.eye(x_NF.shape[1])
        weights_FC = np.linalg.solve(kernel_FF, x_NF.T @ _truth(y_N))
    return Probe(mean_F, scale_F, weights_FC)


def left_out_scores(inputs_NF: np.ndarray, y_N: np.ndarray, penalties: Sequence[float]) -> np.ndarray:
    """Return each anchor's scores [J, N, C] by a probe of all others, for each of J penalties.

    The arguments are those of `fit_probe`.
    """
    from sklearn import linear_model, preprocessing

    x_NF = preprocessing.StandardScaler().fit_transform(np.asarray(inputs_NF, float))
    alphas = np.array(penalties)
    # With a scorer, scikit-learn keeps the predictions instead of their errors.
    ridge = linear_model.RidgeCV(alphas * x_NF.shape[1], scoring="neg_mean_squared_error", store_cv_results=True)
    return np.moveaxis(ridge.fit(x_NF, _truth(y_N)).cv_results_, -1, 0)


def _truth(y_N: np.ndarray) -> np.ndarray:
    """Return 1 for the class of each anchor and 0 for others [N, C], less the classes' shares."""
    truth_NC = np.eye(y_N.max() + 1)[y_N]
    return truth_NC - truth_NC.mean(0)
