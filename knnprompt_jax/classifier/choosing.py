"""Which rule to take: every candidate classifies each anchor by the others, from states that are there, and an estimate that the choice
does not flatter is made by choosing anew without each fifth of the anchors."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from knnprompt_jax import options, tables
from knnprompt_jax.classifier import calibration, rules, votes
from knnprompt_jax.classifier.evidence import Evidence
from knnprompt_jax.classifier.rules import Rule

KS = (1, 3, 7, 15, 31)
DISTANCES = ("forward", "released", "partial", "hidden")
PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0)
METRICS = ("log_loss", "accuracy", "macro_f1")
FEWEST = 10  # Anchors by which anything is chosen.
COLUMNS = ("accuracy %", "macro F1 %", "log loss")
_FOLDS = 5
_LEAST = 2e-16  # The probability that a true class has at least, as in scikit-learn's log loss.


@dataclasses.dataclass(frozen=True)
class Grid:
    """Values that are tried for each setting; where there are several rules, the first that is as good as any is taken."""

    rules: tuple[str, ...] = rules.RULES
    ks: tuple[int, ...] = KS
    distances: tuple[str, ...] = DISTANCES
    weights: tuple[str, ...] = votes.WEIGHTS
    penalties: tuple[float, ...] = PENALTIES

    def default(self, num_anchors: int, demo_shots: int) -> Rule:
        """What is taken where too few anchors are there to choose by."""
        k = min(self.ks, key=lambda k: (k > num_anchors, abs(k - 3)))
        penalty = min(self.penalties, key=lambda penalty: abs(penalty - 1))
        rule = "knn" if "knn" in self.rules else self.rules[0]
        probes = rule != "knn"
        return Rule(rule, demo_shots, k, self.distances[0], "uniform", 0.0, penalty, 1.0, 3.0 * probes)


@dataclasses.dataclass(frozen=True)
class Score:
    """How well anchors are classified; `accuracy` has the standard error of independent ones, and log losses are in nats."""

    accuracy: float
    standard_error: float
    macro_f1: float
    log_loss: float

    @property
    def cells(self) -> list[str]:
        """As `COLUMNS`."""
        return [
            f"{100 * self.accuracy:.1f} ± {100 * self.standard_error:.1f}",
            f"{100 * self.macro_f1:.1f}",
            f"{self.log_loss:.3f}",
        ]

    def lack(self, metric: str) -> float:
        """The loss by this metric; lower is better."""
        return self.log_loss if metric == "log_loss" else -float(getattr(self, metric))

    @classmethod
    def from_dict(cls, content: Mapping[str, float]) -> Self:
        return cls(**{field.name: float(content[field.name]) for field in dataclasses.fields(cls)})


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A rule that was tried, and how well it does where each anchor is classified by the others."""

    rule: Rule
    score: Score


@dataclasses.dataclass(frozen=True)
class Choice:
    """What was chosen and why.

    Attributes:
      rule: the chosen one.
      candidates: everything that was tried, in no order of merit.
      estimate: of the rule on new texts: every fifth of the anchors classified by what the other four would have chosen.
        None where there are too few anchors to choose by.
      metric: what was compared.
      num_anchors: how many classifications each score is a mean of.
      is_earlier: whether anchors were added, taken away or relabelled since.
    """

    rule: Rule
    candidates: tuple[Candidate, ...] = ()
    estimate: Score | None = None
    metric: str = METRICS[0]
    num_anchors: int = 0
    is_earlier: bool = False

    @property
    def line(self) -> str:
        """What was chosen, in one line."""
        if self.is_earlier:
            return f"chosen by the anchors there were before: {self.rule.words}; tune chooses anew"
        if self.estimate is None:
            return f"too few anchors to choose by; taken: {self.rule.words}"
        accuracy, error = 100 * self.estimate.accuracy, 100 * self.estimate.standard_error
        return (
            f"chosen: {self.rule.words}; expect {accuracy:.1f} ± {error:.1f} % on new texts "
            f"(by {self.num_anchors} anchors, of {len(self.candidates)} candidates)"
        )

    @property
    def best(self) -> tuple[Candidate, ...]:
        """The best of each rule and number of demonstrations, as the metric has it."""
        leaders: dict[tuple[str, int], Candidate] = {}
        for each in self.candidates:
            key = each.rule.rule, each.rule.demo_shots
            if key not in leaders or each.score.lack(self.metric) < leaders[key].score.lack(self.metric):
                leaders[key] = each
        return tuple(leaders.values())

    def __str__(self) -> str:
        if not self.candidates or self.is_earlier:
            return self.line
        rows = [[each.rule.words, *each.score.cells] for each in self.best]
        told = f"each of {self.num_anchors} anchors classified by the others; the best by {self.metric} of each kind, which flatters it"
        return f"{told}\n\n{tables.render(['', *COLUMNS], rows)}\n\n{self.line}"

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """What `dataclasses.asdict` has made of it; raises UserError, ValueError, TypeError or KeyError where it is none."""
        candidates = tuple(
            Candidate(options.from_config(Rule, each["rule"]), Score.from_dict(each["score"]))
            for each in content["candidates"]
        )
        numbers = content["num_anchors"], content["is_earlier"]
        if content["metric"] not in METRICS or tuple(map(type, numbers)) != (int, bool):
            raise ValueError("its choice")
        estimate = content["estimate"] and Score.from_dict(content["estimate"])
        rule = options.from_config(Rule, content["rule"])
        return cls(rule, candidates, estimate, content["metric"], *numbers)


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """A candidate's predictions for N anchors of classes `y_N`, and −log p of the true ones in nats."""

    y_N: np.ndarray
    predicted_N: np.ndarray
    losses_N: np.ndarray

    @classmethod
    def of(cls, p_NC: np.ndarray, y_N: np.ndarray) -> "Outcome":
        own_N = p_NC[np.arange(len(y_N)), y_N]
        return cls(y_N, p_NC.argmax(-1), -np.log(np.maximum(own_N, _LEAST)))

    @property
    def score(self) -> Score:
        accuracy, rows = float(np.mean(self.predicted_N == self.y_N)), len(self.y_N)
        supposed = (rows * accuracy + 1) / (rows + 2)  # One more right and one more wrong: nothing is certain.
        error = float(np.sqrt(supposed * (1 - supposed) / rows))
        return Score(accuracy, error, self._macro_f1, float(self.losses_N.mean()))

    @property
    def _macro_f1(self) -> float:
        """The mean F1 of all classes that occur, as label or as prediction."""
        most = int(max(self.y_N.max(), self.predicted_N.max())) + 1
        hits_C, true_C, taken_C = (
            np.bincount(classes_n, minlength=most)
            for classes_n in (self.y_N[self.y_N == self.predicted_N], self.y_N, self.predicted_N)
        )
        occurs_C = true_C + taken_C > 0
        return float(np.mean(2 * hits_C[occurs_C] / (true_C + taken_C)[occurs_C]))

    def lack(self, metric: str) -> float:
        """The loss by this metric; lower is better."""
        if metric == "log_loss":
            return float(self.losses_N.mean())
        return -(float(np.mean(self.predicted_N == self.y_N)) if metric == "accuracy" else self._macro_f1)

    def is_as_good(self, best: "Outcome", metric: str) -> bool:
        """Whether it lacks no more than two standard errors of the difference on the same anchors: the best of many is so by luck too."""
        ours_N, theirs_N = (
            said.losses_N if metric == "log_loss" else (said.predicted_N != said.y_N) * 1.0 for said in (self, best)
        )
        if metric == "macro_f1":  # About the mean of the classes' errors.
            counts_C = np.bincount(self.y_N)
            weights_N = len(self.y_N) / np.count_nonzero(counts_C) / counts_C[self.y_N]
            ours_N, theirs_N = ours_N * weights_N, theirs_N * weights_N
        error = float(np.std(ours_N - theirs_N) / np.sqrt(len(ours_N)))
        return self.lack(metric) - best.lack(metric) <= 2 * error


@dataclasses.dataclass(frozen=True, eq=False)
class _Tried:
    """A candidate and what it says of the anchors that are compared; `scores` are those of all anchors of its set."""

    rule: Rule
    said: Outcome
    scores: tuple[np.ndarray, ...]


def choose(sets: Sequence[Evidence], grid: Grid, metric: str = METRICS[0]) -> Choice:
    """The best rule for anchors that were read after one or several numbers of demonstrations, those preferred coming first.

    Candidates are compared on the anchors that all sets have. Of each rule and set the best candidate is taken, and of these the
    first, rules as in the grid, that is as good as the best but for two standard errors. Sets of fewer than `FEWEST` anchors, or
    of a single class, are left out.
    """
    first, sets = sets[0], [each for each in sets if len(each) >= FEWEST and len(np.unique(each.y_N)) > 1]
    if not sets:
        return Choice(grid.default(len(first), first.demo_shots), metric=metric)
    common = functools.reduce(np.intersect1d, [evidence.ids_N for evidence in sets])
    best, tried = _best(sets, grid, metric, common)
    estimate = Outcome.of(*_held_out(sets, grid, metric, common)).score
    candidates = tuple(Candidate(each.rule, each.said.score) for each in tried)
    return Choice(best.rule, candidates, estimate, metric, len(common))


def _best(sets: Sequence[Evidence], grid: Grid, metric: str, common: np.ndarray) -> tuple[_Tried, list[_Tried]]:
    """The chosen candidate, and all."""
    tried: list[_Tried] = []
    for evidence in sets:
        tried += _candidates(evidence, grid, metric, common)
    best = min(tried, key=lambda each: each.said.lack(metric))
    for name, evidence in itertools.product(grid.rules, sets):
        group = [each for each in tried if (each.rule.rule, each.rule.demo_shots) == (name, evidence.demo_shots)]
        leader = min(group, key=lambda each: each.said.lack(metric))
        if leader.said.is_as_good(best.said, metric):
            return leader, tried
    raise AssertionError("the best is as good as itself")


def _candidates(evidence: Evidence, grid: Grid, metric: str, common: np.ndarray) -> list[_Tried]:
    """Everything that is tried on a set. A blend is of the best votes and the best probe."""
    of_rule = {
        "knn": [_tried(evidence, common, *each) for each in _votes(evidence, grid)],
        "probe": [_tried(evidence, common, *each) for each in _probes(evidence, grid)],
    }
    voting, probing = (min(each, key=lambda tried: tried.said.lack(metric)) for each in of_rule.values())
    both = dataclasses.replace(voting.rule, rule="blend", penalty=probing.rule.penalty)
    of_rule["blend"] = [_tried(evidence, common, both, (*voting.scores, *probing.scores))]
    # Who asks for neighbours of a probe gets the best of them.
    beside = {name: getattr(voting.rule, name) for name in ("k", "distance", "weights", "bandwidth")}
    of_rule["probe"] = [
        dataclasses.replace(each, rule=dataclasses.replace(each.rule, **beside)) for each in of_rule["probe"]
    ]
    return [each for name in grid.rules for each in of_rule[name]]


def _votes(evidence: Evidence, grid: Grid) -> Iterator[tuple[Rule, tuple[np.ndarray, ...]]]:
    places_N, shares_P = evidence.rows.y_N, evidence.shares_P
    most = np.isfinite(evidence.nearest_left_out(grid.distances[0])[1]).sum(-1).min()
    ks = [k for k in grid.ks if k <= most] or [max(1, min(grid.ks))]
    for distance, k, weights in itertools.product(grid.distances, ks, grid.weights):
        near_NN, distances_NN = evidence.nearest_left_out(distance)
        near_Nk, distances_Nk = near_NN[:, :k], distances_NN[:, :k]
        bandwidth = float(np.median(distances_Nk[:, -1] - distances_Nk[:, 0])) if weights == "distance" else 0.0
        if weights == "distance" and len(grid.weights) > 1 and not bandwidth > 0:
            continue  # All votes are the same.
        rule = Rule("knn", evidence.demo_shots, k, distance, weights, bandwidth)
        yield rule, (votes.scores(places_N[near_Nk], distances_Nk, shares_P, bandwidth),)


def _probes(evidence: Evidence, grid: Grid) -> Iterator[tuple[Rule, tuple[np.ndarray, ...]]]:
    for penalty in grid.penalties:
        rule = Rule("probe", evidence.demo_shots, penalty=penalty)
        yield rule, (evidence.rows.left_out(penalty),)


def _tried(evidence: Evidence, common: np.ndarray, rule: Rule, scores: tuple[np.ndarray, ...]) -> _Tried:
    """The candidate with its counts, which all anchors of the set decide."""
    places_N, shares_P = evidence.rows.y_N, evidence.shares_P
    counts = calibration.fit(scores, places_N, shares_P)
    vote_count, probe_count = {"knn": (*counts, 0.0), "probe": (0.0, *counts)}.get(rule.rule, counts)
    p_NP = calibration.probabilities(scores, counts, shares_P)
    is_common_N = np.isin(evidence.ids_N, common)
    rule = dataclasses.replace(rule, vote_count=vote_count, probe_count=probe_count)
    return _Tried(rule, Outcome.of(p_NP[is_common_N], places_N[is_common_N]), scores)


def _held_out(sets: Sequence[Evidence], grid: Grid, metric: str, common: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of each common anchor, by what is chosen without its fold, and the true classes."""
    first = sets[0].take(np.flatnonzero(np.isin(sets[0].ids_N, common)))
    folds_n, num_classes = folds(first.y_N), int(max(evidence.y_N.max() for evidence in sets)) + 1
    p_nC = np.zeros((len(folds_n), num_classes))
    for fold in range(_FOLDS):
        out = first.ids_N[folds_n == fold]
        left = [evidence.take(np.flatnonzero(~np.isin(evidence.ids_N, out))) for evidence in sets]
        chosen, _ = _best(left, grid, metric, common[~np.isin(common, out)])
        at = [evidence.demo_shots for evidence in sets].index(chosen.rule.demo_shots)
        p_nC[folds_n == fold] = _answers(sets[at], chosen.rule, out, num_classes)
    return p_nC, first.y_N


def _answers(evidence: Evidence, rule: Rule, ids_n: np.ndarray, num_classes: int) -> np.ndarray:
    """Probabilities [n, C] of the anchors of these ids by a rule that is fitted to all others."""
    by_id = {number: place for place, number in enumerate(evidence.ids_N.tolist())}
    places_n = np.array([by_id[number] for number in ids_n.tolist()])
    others_M = np.setdiff1d(np.arange(len(evidence)), places_n)
    fitted = rules.Fitted.to(rule, evidence.hidden_NE[others_M], evidence.y_N[others_M], num_classes)
    distances_nM = evidence.distances_NN[rule.distance][np.ix_(places_n, others_M)]
    near_nk = np.argsort(distances_nM, -1, kind="stable")[:, : rule.k]
    near = evidence.y_N[others_M][near_nk], np.take_along_axis(distances_nM, near_nk, -1)
    return fitted.probabilities(*near, evidence.hidden_NE[places_n])


def folds(y_N: np.ndarray) -> np.ndarray:
    """The fold of each anchor [N], drawn at random, with as many of each class in each as possible."""
    generator, folds_N = np.random.default_rng(0), np.empty(len(y_N), int)
    order_N = generator.permutation(len(y_N))
    order_N = order_N[np.argsort(y_N[order_N], kind="stable")]
    folds_N[order_N] = np.arange(len(y_N)) % _FOLDS
    return folds_N
