"""Choice of a rule: every candidate classifies each anchor by the others.

The chosen candidate's own score is optimistic. The estimate for new texts is not: for each fold of the anchors, the
choice is repeated without it and scored on it.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from knnprompt_jax import distances, errors, lm
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.rules import evidence as evidence_lib
from knnprompt_jax.rules import rule as rule_lib
from knnprompt_jax.rules.choice import Candidate, Choice, Score
from knnprompt_jax.rules.evidence import Evidence
from knnprompt_jax.rules.rule import Rule
from knnprompt_jax.settings import classifiers
from knnprompt_jax.settings.classifiers import AUTO, METRICS, RULES, WEIGHTS

KS = (1, 3, 7, 15, 31)
DISTANCES = tuple(name for name, distance in distances.DISTANCES.items() if distance.is_candidate)
PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0)
MIN_ANCHORS = 10  # Minimum number of anchors for a choice.
_FOLDS = 5
_MIN_PROBABILITY = 2e-16  # Of a true class, as in scikit-learn's log loss.


@dataclasses.dataclass(frozen=True)
class Grid:
    """Candidate values of each setting. Of equally good rules, the first is chosen."""

    rules: tuple[str, ...] = RULES
    ks: tuple[int, ...] = KS
    distances: tuple[str, ...] = DISTANCES
    weights: tuple[str, ...] = WEIGHTS
    penalties: tuple[float, ...] = PENALTIES

    @classmethod
    def of(cls, options: classifiers.AutoOptions) -> Self:
        """Return the candidates compatible with a classifier's options.

        Raise UserError on an option that its rule does not use.
        """
        options.refuse_unused()
        has_probe_options = {options.penalty, options.layer} != {AUTO}
        has_vote_options = {options.k, options.distance, options.weights} != {AUTO}
        excluded = {"votes": has_probe_options, "probe": has_vote_options}
        names = tuple(name for name in RULES if not excluded.get(name)) if options.rule == AUTO else (options.rule,)
        given: dict[str, Any] = {"ks": options.k, "distances": options.distance}
        given |= {"weights": options.weights, "penalties": options.penalty}
        return cls(names, **{name: (value,) for name, value in given.items() if value != AUTO})

    def default(self, evidence: Evidence) -> Rule:
        """Return the rule for fewer than `MIN_ANCHORS` anchors; raise UserError on weights that need more."""
        if self.weights == ("distance",):
            raise errors.UserError(
                f"weights='distance': at least {MIN_ANCHORS} anchors of two classes are needed; leave it out or add rows"
            )
        k = min(self.ks, key=lambda k: (k > len(evidence), abs(k - 3)))
        penalty = min(self.penalties, key=lambda penalty: abs(penalty - 1))
        rule = "votes" if "votes" in self.rules else self.rules[0]
        reads_probe = rule != "votes"
        return Rule(
            rule,
            demo_shots=evidence.demo_shots,
            k=k,
            distance=self.distances[0],
            penalty=penalty,
            layer=evidence.layer if reads_probe else 0,
            vote_count=1.0,
            probe_count=3.0 if reads_probe else 0.0,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """Predictions for N anchors of classes `y_N`, and −log p of their true classes in nats."""

    y_N: np.ndarray
    predicted_N: np.ndarray
    losses_N: np.ndarray

    @classmethod
    def of(cls, p_NC: np.ndarray, y_N: np.ndarray) -> "Outcome":
        own_N = p_NC[np.arange(len(y_N)), y_N]
        return cls(y_N, p_NC.argmax(-1), -np.log(np.maximum(own_N, _MIN_PROBABILITY)))

    @functools.cached_property
    def score(self) -> Score:
        accuracy = float(np.mean(self.predicted_N == self.y_N))
        count = len(self.y_N)
        smoothed = (count * accuracy + 1) / (count + 2)  # One more right and one more wrong: nothing is certain.
        error = float(np.sqrt(smoothed * (1 - smoothed) / count))
        total_C = np.bincount(np.concatenate([self.y_N, self.predicted_N]))  # As label and as prediction.
        hits_C = np.bincount(self.y_N[self.y_N == self.predicted_N], minlength=len(total_C))
        macro_f1 = float(np.mean(2 * hits_C[total_C > 0] / total_C[total_C > 0]))
        return Score(accuracy, error, macro_f1, float(self.losses_N.mean()))

    def is_as_good(self, best: "Outcome", metric: str) -> bool:
        """Return whether its loss is within two standard errors of the difference to the best, on the same anchors.

        The best of many candidates is the best partly by luck.
        """
        if metric == "log_loss":
            differences_N = self.losses_N - best.losses_N
        else:
            differences_N = 1.0 * (self.predicted_N != self.y_N) - (best.predicted_N != best.y_N)
        if metric == "macro_f1":  # About the mean of the classes' errors.
            counts_C = np.bincount(self.y_N)
            differences_N = differences_N * (len(self.y_N) / np.count_nonzero(counts_C) / counts_C[self.y_N])
        error = float(np.std(differences_N) / np.sqrt(len(differences_N)))
        return self.score.loss(metric) - best.score.loss(metric) <= 2 * error


@dataclasses.dataclass(frozen=True, eq=False)
class _Trial:
    """A candidate with its outcome on the compared anchors, and the scores of all anchors of its evidence."""

    rule: Rule
    outcome: Outcome
    scores: tuple[np.ndarray, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """The N anchors by which rules are compared, read after one number of demonstrations.

    Attributes:
        demo_shots: demonstrations per class.
        ids_N: ids that identify the anchors across samples.
        y_N: the anchors' classes.
        states: the anchors' states, whole on every device; a probe reads the last of their layers too.
    """

    demo_shots: int
    ids_N: np.ndarray
    y_N: np.ndarray
    states: lm.States


def choose(
    samples: Sequence[Sample], head: head_lib.Head, label_ids: Sequence[int], grid: Grid, metric: str = METRICS[0]
) -> Choice:
    """Choose the best rule from the states of anchors.

    Args:
        samples: one sample per number of demonstrations, preferred numbers first.
        label_ids: the token of each class; without them, no distance between label words is a candidate.
    """
    names = [name for name in grid.distances if label_ids or not distances.get(name).reads_label_words]
    grid = dataclasses.replace(grid, distances=tuple(names))
    sets = []
    for sample in samples:
        layer = max(sample.states.layers, default=0)
        inputs_NF = rule_lib.probe_inputs(sample.states, layer)
        pairs = {name: evidence_lib.all_pairs(name, sample.states, head, label_ids) for name in names}
        sets.append(Evidence(sample.demo_shots, sample.ids_N, sample.y_N, layer, inputs_NF, pairs))
    return choose_by_evidence(sets, grid, metric)


def choose_by_evidence(sets: Sequence[Evidence], grid: Grid, metric: str = METRICS[0]) -> Choice:
    """Choose the best rule for anchors read after one or several numbers of demonstrations, preferred numbers first.

    Candidates are compared on the anchors that all sets share. The first rule and set, in grid order, whose best
    candidate is within two standard errors of the overall best is chosen. A candidate better by every metric replaces
    it. Sets of fewer than `MIN_ANCHORS` anchors or of a single class are left out.
    """
    preferred = sets[0]
    sets = [evidence for evidence in sets if len(evidence) >= MIN_ANCHORS and len(np.unique(evidence.y_N)) > 1]
    if not sets:
        return Choice(grid.default(preferred), metric=metric)
    common = functools.reduce(np.intersect1d, [evidence.ids_N for evidence in sets])
    best, trials = _best(sets, grid, metric, common)
    estimate = Outcome.of(*_held_out(sets, grid, metric, common)).score
    candidates = tuple(Candidate(trial.rule, trial.outcome.score) for trial in trials)
    return Choice(best.rule, candidates, estimate, metric, len(common))


def folds(y_N: np.ndarray) -> np.ndarray:
    """Draw the fold of each anchor [N], balanced within each class."""
    folds_N = np.empty(len(y_N), int)
    order_N = np.random.default_rng(0).permutation(len(y_N))
    order_N = order_N[np.argsort(y_N[order_N], kind="stable")]
    folds_N[order_N] = np.arange(len(y_N)) % _FOLDS
    return folds_N


def _best(sets: Sequence[Evidence], grid: Grid, metric: str, common: np.ndarray) -> tuple[_Trial, list[_Trial]]:
    """Return the chosen trial and all trials."""
    trials = [trial for evidence in sets for trial in _try_all(evidence, grid, metric, common)]
    best = _best_trial(trials, metric)
    for name, evidence in itertools.product(grid.rules, sets):
        group = [trial for trial in trials if (trial.rule.rule, trial.rule.demo_shots) == (name, evidence.demo_shots)]
        leader = _best_trial(group, metric)
        if leader.outcome.is_as_good(best.outcome, metric):
            better = [trial for trial in trials if leader.outcome.score.is_dominated_by(trial.outcome.score)]
            return _best_trial([leader, *better], metric), trials
    raise AssertionError("the best is as good as itself")


def _try_all(evidence: Evidence, grid: Grid, metric: str, common: np.ndarray) -> list[_Trial]:
    """Try all candidates on a set. The blend joins the best votes and the best probe."""
    votes = [_try(evidence, common, rule, scores) for rule, scores in _votes(evidence, grid)]
    probes = []
    scores_JNP = rule_lib.left_out_scores(evidence.inputs_NF, evidence.compact_y_N, grid.penalties)
    for penalty, scores_NP in zip(grid.penalties, scores_JNP, strict=True):
        rule = Rule("probe", evidence.demo_shots, penalty=penalty, layer=evidence.layer)
        probes.append(_try(evidence, common, rule, (scores_NP,)))
    best_votes = _best_trial(votes, metric)
    best_probe = _best_trial(probes, metric)
    blend = dataclasses.replace(best_votes.rule, rule="blend", penalty=best_probe.rule.penalty, layer=evidence.layer)
    # A probe keeps the best settings of votes so that `kneighbors` still works.
    settings = {name: getattr(best_votes.rule, name) for name in ("k", "distance", "weights", "bandwidth")}
    trials_by_rule = {
        "votes": votes,
        "probe": [dataclasses.replace(probe, rule=dataclasses.replace(probe.rule, **settings)) for probe in probes],
        "blend": [_try(evidence, common, blend, (*best_votes.scores, *best_probe.scores))],
    }
    return [trial for name in grid.rules for trial in trials_by_rule[name]]


def _best_trial(trials: Sequence[_Trial], metric: str) -> _Trial:
    return min(trials, key=lambda trial: trial.outcome.score.loss(metric))


def _votes(evidence: Evidence, grid: Grid) -> Iterator[tuple[Rule, tuple[np.ndarray, ...]]]:
    """Yield each candidate of votes with its scores [N, C]."""
    max_k = np.isfinite(evidence.nearest_left_out[grid.distances[0]][1]).sum(-1).min()
    ks = [k for k in grid.ks if k <= max_k] or [max(1, min(grid.ks))]
    for distance, k, weights in itertools.product(grid.distances, ks, grid.weights):
        near_NN, distances_NN = evidence.nearest_left_out[distance]
        distances_Nk = distances_NN[:, :k]
        # Rows with fewer than k neighbours end in infinite distances.
        last_N = np.where(np.isfinite(distances_Nk), distances_Nk, -np.inf).max(-1)
        bandwidth = float(np.median(last_N - distances_Nk[:, 0])) if weights == "distance" else 0.0
        if weights == "distance" and len(grid.weights) > 1 and not bandwidth > 0:
            continue  # All votes would count the same.
        rule = Rule("votes", evidence.demo_shots, k, distance, weights, bandwidth)
        classes_Nk = evidence.compact_y_N[near_NN[:, :k]]
        yield rule, (rule_lib.vote_scores(classes_Nk, distances_Nk, evidence.shares_P, bandwidth),)


def _try(evidence: Evidence, common: np.ndarray, rule: Rule, scores: tuple[np.ndarray, ...]) -> _Trial:
    """Fit the counts of a rule's scores to all anchors of the set, and classify the common ones."""
    y_N = evidence.compact_y_N
    counts = rule_lib.fit_counts(scores, y_N, evidence.shares_P)
    p_NP = rule_lib.probabilities(scores, counts, evidence.shares_P)
    common_n = evidence.indices(common)
    fitted_rule = dataclasses.replace(
        rule,
        vote_count=0.0 if rule.rule == "probe" else counts[0],
        probe_count=0.0 if rule.rule == "votes" else counts[-1],
    )
    return _Trial(fitted_rule, Outcome.of(p_NP[common_n], y_N[common_n]), scores)


def _held_out(sets: Sequence[Evidence], grid: Grid, metric: str, common: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities of each common anchor, by the choice without its fold, and the true classes."""
    first = sets[0].take(sets[0].indices(common))
    folds_n = folds(first.y_N)
    num_classes = int(max(evidence.y_N.max() for evidence in sets)) + 1
    p_nC = np.zeros((len(folds_n), num_classes))
    for fold in range(_FOLDS):
        held_out = first.ids_N[folds_n == fold]
        rest = [evidence.take(np.flatnonzero(~np.isin(evidence.ids_N, held_out))) for evidence in sets]
        best, _ = _best(rest, grid, metric, common[~np.isin(common, held_out)])
        evidence = next(evidence for evidence in sets if evidence.demo_shots == best.rule.demo_shots)
        p_nC[folds_n == fold] = _classify(evidence, best.rule, held_out, num_classes)
    return p_nC, first.y_N


def _classify(evidence: Evidence, rule: Rule, ids_n: np.ndarray, num_classes: int) -> np.ndarray:
    """Return probabilities [n, C] of the anchors of these ids, by the rule fitted to all others."""
    indices_n = evidence.indices(ids_n)
    rest_M = np.setdiff1d(np.arange(len(evidence)), indices_n)
    inputs_NF = evidence.inputs_NF
    fitted = rule_lib.FittedRule.fit(rule, inputs_NF[rest_M], evidence.y_N[rest_M], num_classes)
    distances_nM = evidence.distances_NN[rule.distance][np.ix_(indices_n, rest_M)]
    near_nk = np.argsort(distances_nM, -1, kind="stable")[:, : rule.k]
    near = evidence.y_N[rest_M][near_nk], np.take_along_axis(distances_nM, near_nk, -1)
    return fitted.probabilities(*near, inputs_NF[indices_n])
