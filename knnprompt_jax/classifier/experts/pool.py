"""The pool: p(class | text) ∝ share of the class · exp(Σ_j w_j f_j s_j), over the scores s_j of experts.

The factor f_j makes an expert alone calibrated. The weights w_j combine the calibrated experts. Both have a Gaussian
prior: ten rows hardly move them from it, a thousand determine them. Both are fitted to scores of rows that were held
out. The estimate of accuracy repeats both without the fold that it is measured on.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from knnprompt_jax.classifier.experts import views
from knnprompt_jax.common import text_tables

VERSION = 3  # Increment it when predictions change: records of another version are not resumed.
FEW_ROWS = 16  # Rows per class up to which the prior of few rows holds.
_PRIOR = {  # Up to `FEW_ROWS` per class, more rows, and `views.MANY_CLASSES` or more; for each view of an expert.
    "labels": (6.0, 0.5, 0.5),
    "means": (0.5, 0.5, 1.0),
    "knn": (0.5, 0.5, 0.2),
    "probe": (1.0, 1.0, 1.0),
    "words": (0.2, 0.5, 1.0),
    "encoder": (1.0, 1.0, 2.0),
}
"""Prior weights before they are scaled to `_TOTAL`; measured on SUBJ, SST2, MPQA, TREC, AGNews and HWU64."""
_FACTORS = {"labels": 1.3, "means": 6.0, "knn": 1.0, "probe": 4.0, "words": 6.0, "encoder": 4.0}
"""Prior factors: those of calibrated experts on the same tasks."""
_FACTOR_DEVIATION = 0.7  # Of the logarithm of a factor from its prior.
_TOTAL = 1.5  # The sum of the prior weights: 1 for identical experts, more for independent ones.
_DEVIATION = 0.5  # Of a weight from its prior, relative to the mean prior weight.
_TOTAL_DEVIATION = 1.0  # Of the sum of the weights from its prior, relative to this sum.
_ESTIMATE_FOLDS = 5
_EM_STEPS = 100
MIN_ROWS = 50  # For an estimate of accuracy.
MIN_ROWS_PER_CLASS = 5
ROWS_FOR_ESTIMATE = f"{MIN_ROWS} different texts of two classes, and {MIN_ROWS_PER_CLASS} per class on average"
_MIN_PROBABILITY = 2e-16  # Of a true class, as in scikit-learn's log loss.


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The accuracy on held-out rows with its 95 % interval, and macro F1 and log loss in nats."""

    accuracy: float
    low: float
    high: float
    macro_f1: float
    log_loss: float


@dataclasses.dataclass(frozen=True)
class Member:
    """An expert of a pool.

    Attributes:
        expert: its name, a key of `expert.KINDS`.
        demo_shots: demonstrations per class in the prompts that it reads; None if it reads none.
        token_block: the block whose outputs it averages over the tokens of a text; 0 if it reads the last token.
        setting: its own setting: the penalty of a ridge regression, the k of votes, otherwise 0.
        factor: the factor of its scores at which it is calibrated.
        weight: its weight in the pool.
        share: its share of the pool's scores, by their deviation between classes; of the weights if no row can be held
            out.
        accuracy: its own accuracy on rows that were held out, with the classes' shares of the rows; None if there were
            too few to hold any out.
    """

    expert: str
    demo_shots: int | None
    token_block: int
    setting: float
    factor: float = 0.0
    weight: float = 0.0
    share: float = 0.0
    accuracy: float | None = None

    @property
    def title(self) -> str:
        """The name with what it reads."""
        if self.demo_shots is None:
            return self.expert
        if self.token_block:
            return f"{self.expert}, all tokens, block {self.token_block}"
        per_class = " per class" if self.demo_shots else ""
        return f"{self.expert}, {self.demo_shots or 'no'} demonstrations{per_class}"


@dataclasses.dataclass(frozen=True)
class Choice:
    """The experts of a pool with their weights, and what to expect of it.

    Attributes:
        members: the experts.
        obstacles: the experts that left themselves out, with the reason.
        estimate: the pool's score on rows that were held out; None if there were too few rows to trust it.
        num_rows: the number of rows that experts were compared on.
        offset: what is subtracted from the logit of every class [C], because of texts without labels; empty without.
        held_out_p: the probability of the predicted class of each text that was held out, near copies once, in the
            order of their numbers; empty without an estimate.
        held_out_right: whether it is the class of the text's first row.
    """

    members: tuple[Member, ...]
    obstacles: tuple[str, ...] = ()
    estimate: Estimate | None = None
    num_rows: int = 0
    offset: tuple[float, ...] = dataclasses.field(default=(), repr=False)
    held_out_p: tuple[float, ...] = dataclasses.field(default=(), repr=False)
    held_out_right: tuple[bool, ...] = dataclasses.field(default=(), repr=False)

    @property
    def used(self) -> tuple[Member, ...]:
        """The experts that have a weight; others need not be fitted to score new texts."""
        return tuple(member for member in self.members if member.weight > 0)

    @property
    def views(self) -> tuple[int, ...]:
        """The numbers of demonstrations per class of the prompts that the experts read."""
        return tuple(dict.fromkeys(member.demo_shots for member in self.members if member.demo_shots is not None))

    @property
    def line(self) -> str:
        """The choice in one line."""
        found = self.estimate
        if found is None:
            return f"{self.num_rows:,} rows: too few for a forecast of accuracy, which requires {ROWS_FOR_ESTIMATE}"
        return (
            f"expected on new texts, if classes are as common as among the rows: accuracy {100 * found.accuracy:.1f} % "
            f"(95 % interval {100 * found.low:.1f} to {100 * found.high:.1f}), macro F1 {100 * found.macro_f1:.1f} %, "
            f"log loss {found.log_loss:.3f}"
        )

    def __str__(self) -> str:
        """Return a table of the experts with their accuracy and share, the pool last, and `line`."""
        members = sorted(self.members, key=lambda member: -member.share)
        rows = [[member.title, _percent(member.accuracy), f"{100 * member.share:.0f}"] for member in members]
        if self.estimate:
            rows.append(["pool", _percent(self.estimate.accuracy), "100"])
        heading = f"experts on {self.num_rows:,} rows, each held out, and their shares of the pool"
        table = text_tables.render(["expert", "accuracy %", "share %"], rows)
        remarks = [] if self.used else ["no expert is of use: every prediction will be the most common class"]
        return "\n\n".join([heading, table, *remarks, *self.obstacles, self.line])


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def weigh_experts(
    experts: Sequence[Member], scores_JNC: np.ndarray, y_N: np.ndarray, folds_N: np.ndarray, obstacles: Sequence[str]
) -> tuple[Choice, np.ndarray]:
    """Return the pool of these experts for N rows of classes `y_N`, all of which occur, dealt to folds.

    Its logits of the rows come with it [N, C]; if there are enough rows for an estimate, those of a group of folds are
    by weights fitted to the others.

    Args:
        experts: the experts without factors, weights, shares and accuracies.
        scores_JNC: their scores of the rows, which were held out.
    """
    num_classes = int(y_N.max()) + 1
    priors = _priors(experts, len(y_N), num_classes)
    shares_C = np.bincount(y_N) / len(y_N)
    factors_J, weights_J = _fit(scores_JNC, y_N, shares_C, priors)
    deviations_J = factors_J * weights_J * scores_JNC.std(-1).mean(-1)
    deviations_J = deviations_J if deviations_J.any() else weights_J
    shares_J = deviations_J / max(deviations_J.sum(), _MIN_PROBABILITY)
    members = tuple(
        dataclasses.replace(
            expert,
            factor=float(factor),
            weight=float(weight),
            share=float(share),
            accuracy=_accuracy(factor * scores_NC, y_N, shares_C),
        )
        for expert, scores_NC, factor, weight, share in zip(
            experts, scores_JNC, factors_J, weights_J, shares_J, strict=True
        )
    )
    logits_NC = np.tensordot(factors_J * weights_J, scores_JNC, 1)
    if _are_enough(len(y_N), num_classes):
        logits_NC = _nested_logits(scores_JNC, y_N, folds_N, shares_C, priors)
    return Choice(members, tuple(obstacles), num_rows=len(y_N)), logits_NC


def _are_enough(num_rows: int, num_classes: int) -> bool:
    """Return whether there are enough rows for an estimate of accuracy."""
    return num_classes > 1 and num_rows >= max(MIN_ROWS, MIN_ROWS_PER_CLASS * num_classes)


def assess(choice: Choice, logits_NC: np.ndarray, y_N: np.ndarray, first_U: np.ndarray) -> Choice:
    """Return the choice with what to expect of it, from the logits of held-out rows.

    Args:
        first_U: the first row of each text and label, which counts once; if they are too few, nothing is expected.
    """
    if not _are_enough(len(first_U), logits_NC.shape[1]):
        return choice
    p_UC = probabilities(logits_NC[first_U], np.bincount(y_N) / len(y_N))
    y_U = y_N[first_U]
    return dataclasses.replace(
        choice,
        estimate=_estimate(p_UC, y_U),
        held_out_p=tuple(p_UC.max(-1).tolist()),
        held_out_right=tuple((p_UC.argmax(-1) == y_U).tolist()),
    )


def _accuracy(scores_NC: np.ndarray, y_N: np.ndarray, shares_C: np.ndarray) -> float | None:
    """Return the accuracy of an expert alone, where common classes are more probable; None if all scores are 0."""
    return float(np.mean((np.log(shares_C) + scores_NC).argmax(-1) == y_N)) if scores_NC.any() else None


Priors = tuple[np.ndarray, np.ndarray]
"""The prior factors and weights [J] of experts."""


def _priors(experts: Sequence[Member], num_rows: int, num_classes: int) -> Priors:
    """Return the priors for this number of classes and of rows per class."""
    has_few_rows = num_rows <= FEW_ROWS * num_classes
    column = 2 if num_classes >= views.MANY_CLASSES else 0 if has_few_rows else 1
    weights_J = np.array([_PRIOR[member.expert][column] for member in experts])
    factors_J = np.array([_FACTORS[member.expert] for member in experts])
    return factors_J, _TOTAL * weights_J / weights_J.sum()


def probabilities(logits_NC: np.ndarray, shares_C: np.ndarray) -> np.ndarray:
    """Return softmax(log share + logit) [N, C]; the logits are Σ_j weight_j · factor_j · score_j."""
    return np.exp(_log_softmax(np.log(shares_C) + logits_NC))


def offset(logits_UC: np.ndarray, logits_NC: np.ndarray, num_rows: int) -> np.ndarray:
    """Return what to subtract from the logits of each class [C]: U / (U + `num_rows`) of the difference of their means.

    These are over U texts without labels and over rows that were held out. Classes are assumed to be as common among
    the former as among the latter.
    """
    difference_C = logits_UC.mean(0) - logits_NC.mean(0)
    return len(logits_UC) / (len(logits_UC) + num_rows) * (difference_C - difference_C.mean())


def estimate_shares(p_UC: np.ndarray, shares_C: np.ndarray) -> np.ndarray:
    """Return the shares [C] of classes among texts with probabilities `p_UC`, which assume `shares_C`.

    Expectation maximisation of the texts' likelihood (Saerens, Latinne and Decaestecker 2002), after which each class
    with a share counts as one text more, (U · share + 1) / (U + C): few texts exclude no class.
    """
    ratio_UC = p_UC / np.where(shares_C > 0, shares_C, 1)
    found_C = shares_C
    for _ in range(_EM_STEPS):
        posterior_UC = ratio_UC * found_C
        found_C = (posterior_UC / posterior_UC.sum(-1, keepdims=True)).mean(0)
    counts_C = len(p_UC) * found_C + (shares_C > 0)
    return counts_C / counts_C.sum()


def _log_softmax(logits_NC: np.ndarray) -> np.ndarray:
    logits_NC = logits_NC - logits_NC.max(-1, keepdims=True, initial=-np.inf)
    return logits_NC - np.log(np.exp(logits_NC).sum(-1, keepdims=True))


def _fit(
    scores_JNC: np.ndarray, y_N: np.ndarray, shares_C: np.ndarray, priors: Priors
) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors [J] and the weights [J]; every share of a class is above 0."""
    prior_factors_J, prior_weights_J = priors
    scored = zip(scores_JNC, prior_factors_J, strict=True)
    factors_J = np.array([_fit_factor(scores_NC, y_N, shares_C, prior) for scores_NC, prior in scored])
    scaled_JNC = factors_J[:, None, None] * scores_JNC
    return factors_J, _fit_weights(scaled_JNC, y_N, shares_C, prior_weights_J)


def _targets(y_N: np.ndarray, shares_C: np.ndarray) -> np.ndarray:
    """Return the probability of each row's class, (N + 1) / (N + 2), as in Platt scaling, and of the others [N, C].

    So scores that are right for every one of a few rows give no certainty.
    """
    count = len(y_N)
    truth_NC = np.tile(shares_C / (count + 2), (count, 1))
    truth_NC[np.arange(count), y_N] += (count + 1) / (count + 2)
    return truth_NC


def _fit_factor(scores_NC: np.ndarray, y_N: np.ndarray, shares_C: np.ndarray, prior: float) -> float:
    """Return the factor of an expert's scores with the highest posterior probability."""
    from scipy import optimize

    truth_NC = _targets(y_N, shares_C)

    def loss(log_ratio: float) -> float:
        logits_NC = np.log(shares_C) + prior * np.exp(log_ratio) * scores_NC
        log_p_NC = _log_softmax(logits_NC)
        return -float((truth_NC * log_p_NC).sum()) + 0.5 * (log_ratio / _FACTOR_DEVIATION) ** 2

    found = optimize.minimize_scalar(loss, bounds=(-5.0, 5.0), method="bounded", options={"xatol": 1e-3})
    return prior * float(np.exp(found.x))


def _fit_weights(scaled_JNC: np.ndarray, y_N: np.ndarray, shares_C: np.ndarray, prior_J: np.ndarray) -> np.ndarray:
    """Return the weights ≥ 0 with the highest posterior probability."""
    from scipy import optimize

    truth_NC = _targets(y_N, shares_C)
    direction_J = prior_J / np.linalg.norm(prior_J)
    width = _DEVIATION * prior_J.mean()
    total_width = _TOTAL_DEVIATION * float(np.linalg.norm(prior_J))
    across_JJ = (np.eye(len(prior_J)) - np.outer(direction_J, direction_J)) / width**2
    precision_JJ = across_JJ + np.outer(direction_J, direction_J) / total_width**2

    def loss(weights_J: np.ndarray) -> tuple[float, np.ndarray]:
        logits_NC = np.log(shares_C) + np.tensordot(weights_J, scaled_JNC, 1)
        log_p_NC = _log_softmax(logits_NC)
        slope_J = np.tensordot(scaled_JNC, np.exp(log_p_NC) - truth_NC, 2)
        change_J = weights_J - prior_J
        value = -(truth_NC * log_p_NC).sum() + 0.5 * change_J @ precision_JJ @ change_J
        return float(value), slope_J + precision_JJ @ change_J

    found = optimize.minimize(loss, prior_J, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(prior_J))
    return found.x


def _nested_logits(
    scores_JNC: np.ndarray, y_N: np.ndarray, folds_N: np.ndarray, shares_C: np.ndarray, priors: Priors
) -> np.ndarray:
    """Return the logits [N, C] of each group of folds by a pool whose weights are fitted to the others.

    The classes' shares are those of all rows: without a group, a rare class can have none.
    """
    groups_N = folds_N % _ESTIMATE_FOLDS
    logits_NC = np.zeros(scores_JNC.shape[1:])
    for group in np.unique(groups_N):
        is_held_out_N = groups_N == group
        factors_J, weights_J = _fit(scores_JNC[:, ~is_held_out_N], y_N[~is_held_out_N], shares_C, priors)
        logits_NC[is_held_out_N] = np.tensordot(factors_J * weights_J, scores_JNC[:, is_held_out_N], 1)
    return logits_NC


def _estimate(p_NC: np.ndarray, y_N: np.ndarray) -> Estimate:
    from scipy import stats  # Its import takes longer than the prediction of a text.
    from sklearn import metrics

    predicted_N = p_NC.argmax(-1)
    num_right = int(np.sum(predicted_N == y_N))
    interval = stats.binomtest(num_right, len(y_N)).proportion_ci(method="wilson")
    own_N = p_NC[np.arange(len(y_N)), y_N]
    return Estimate(
        accuracy=num_right / len(y_N),
        low=float(interval.low),
        high=float(interval.high),
        macro_f1=float(metrics.f1_score(y_N, predicted_N, average="macro")),
        log_loss=float(-np.log(np.maximum(own_N, _MIN_PROBABILITY)).mean()),
    )
