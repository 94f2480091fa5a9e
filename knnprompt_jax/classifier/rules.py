"""What a classifier answers by: the nearest anchors' votes, a linear probe of their states, or both; chosen, and fitted to anchors."""

import dataclasses
from typing import Any, Self

import numpy as np

from knnprompt_jax import options
from knnprompt_jax.classifier import calibration, probe, votes
from knnprompt_jax.store import distances

_VOTING, _PROBING = ("k", "distance", "weights"), ("penalty",)
RULES = ("probe", "blend", "knn")  # Of those that are as good, the first is taken.


@dataclasses.dataclass(frozen=True)
class Rule(options.Options):
    """Every setting by which texts are classified; those of votes stand beside a probe, too, for who asks for neighbours."""

    rule: str = options.option("knn", "What answers.", choices=RULES)
    demo_shots: int = options.option(0, "Demonstrations per class.", least=0)
    k: int = options.option(1, "Neighbours that vote.", least=1)
    distance: str = options.option("forward", "By which they are near.", choices=distances.DISTANCES)
    weights: str = options.option("uniform", "What a vote counts.", choices=votes.WEIGHTS)
    bandwidth: float = options.option(0.0, "How fast votes fade, in the distance's unit; 0: not at all.", least=0)
    penalty: float = options.option(1.0, "Of the probe.", least=0)
    vote_count: float = options.option(1.0, "How far the votes' scores count.", least=0)
    probe_count: float = options.option(0.0, "How far the probe's scores count.", least=0)

    @property
    def named(self) -> dict[str, Any]:
        """The settings that matter to it, as a classifier is given them, but for the demonstrations."""
        parts = {"knn": _VOTING, "probe": _PROBING, "blend": (*_VOTING, *_PROBING)}
        return {name: getattr(self, name) for name in ("rule", *parts[self.rule])}

    @property
    def words(self) -> str:
        """The settings that matter to it, in one line."""
        told = {**self.named, "demo_shots": self.demo_shots}
        return ", ".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in told.items()
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Fitted:
    """A rule with what it keeps of the anchors: their classes `present_P`, how common these are, and the probe."""

    rule: Rule
    num_classes: int
    present_P: np.ndarray
    shares_P: np.ndarray
    probe: probe.Probe | None

    def weights_of_probe(self) -> np.ndarray:
        """What its scores change by with each dimension of a state, [E, C]."""
        assert self.probe is not None
        weights_EC = np.zeros((len(self.probe.scale_E), self.num_classes))
        weights_EC[:, self.present_P] = self.probe.weights_EC / self.probe.scale_E[:, None]
        return weights_EC

    @classmethod
    def to(cls, rule: Rule, hidden_NE: np.ndarray | None, y_N: np.ndarray, num_classes: int) -> Self:
        """The rule for N anchors with these states, which votes alone do not need, and classes."""
        present_P, y_N, counts_P = np.unique(y_N, return_inverse=True, return_counts=True)
        fitted = None
        if rule.rule != "knn":
            assert hidden_NE is not None
            fitted = probe.Rows(hidden_NE, y_N, len(present_P)).fit(rule.penalty)
        return cls(rule, num_classes, present_P, counts_P / len(y_N), fitted)

    def probabilities(
        self,
        classes_Qk: np.ndarray,
        distances_Qk: np.ndarray,
        hidden_QE: np.ndarray,
        prior_C: np.ndarray | None = None,
        probe_moves_QC: np.ndarray | float = 0.0,
    ) -> np.ndarray:
        """Of every class [Q, C]; a class without anchors has 0.

        Args:
          classes_Qk, distances_Qk: of each text's neighbours, nearest first.
          hidden_QE: the texts' states.
          prior_C: how common the classes are among the texts; by default as among the anchors.
          probe_moves_QC: what is added to the probe's scores.
        """
        probed_QP = None
        if self.probe:
            moves_QC = np.broadcast_to(probe_moves_QC, (len(hidden_QE), self.num_classes))
            probed_QP = self.probe.scores(hidden_QE) + moves_QC[:, self.present_P]
        return self._combined(classes_Qk, distances_Qk, probed_QP, prior_C)

    def left_out(
        self, classes_Nk: np.ndarray, distances_Nk: np.ndarray, hidden_NE: np.ndarray, y_N: np.ndarray
    ) -> np.ndarray:
        """Of every class [N, C] for each anchor by all others; its neighbours are others too."""
        places_N, probed_NP = np.searchsorted(self.present_P, y_N), None
        if self.probe:
            probed_NP = probe.Rows(hidden_NE, places_N, len(self.present_P)).left_out(self.rule.penalty)
        return self._combined(classes_Nk, distances_Nk, probed_NP)

    def _combined(
        self,
        classes_Qk: np.ndarray,
        distances_Qk: np.ndarray,
        probed_QP: np.ndarray | None,
        prior_C: np.ndarray | None = None,
    ) -> np.ndarray:
        rule, scores, counts = self.rule, [], []
        if rule.rule != "probe":
            places_Qk = np.searchsorted(self.present_P, classes_Qk)
            scores_QP = votes.scores(places_Qk, np.asarray(distances_Qk, float), self.shares_P, rule.bandwidth)
            scores.append(scores_QP)
            counts.append(rule.vote_count)
        if probed_QP is not None:
            scores.append(probed_QP)
            counts.append(rule.probe_count)
        p_QP = calibration.probabilities(scores, counts, self.shares_P)
        if prior_C is not None:
            p_QP = calibration.with_prior(p_QP, self.shares_P, prior_C[self.present_P])
        p_QC = np.zeros((len(p_QP), self.num_classes))
        p_QC[:, self.present_P] = p_QP
        return p_QC
