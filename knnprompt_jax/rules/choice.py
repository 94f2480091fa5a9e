"""A chosen rule with its score, and all candidates with theirs."""

import dataclasses
from typing import Any

from knnprompt_jax import tables
from knnprompt_jax.rules.rule import Rule
from knnprompt_jax.settings.classifiers import METRICS

COLUMNS = ("accuracy %", "macro F1 %", "log loss")


@dataclasses.dataclass(frozen=True)
class Score:
    """Scores over classified anchors: accuracy, macro F1 and log loss in nats.

    The standard error of the accuracy assumes independent anchors.
    """

    accuracy: float
    standard_error: float
    macro_f1: float
    log_loss: float

    @property
    def words(self) -> str:
        """Accuracy and macro F1, in percent."""
        return (
            f"accuracy {100 * self.accuracy:.1f} % (standard error {100 * self.standard_error:.1f}), "
            f"macro F1 {100 * self.macro_f1:.1f} %"
        )

    @property
    def cells(self) -> list[str]:
        """The cells under `COLUMNS`."""
        accuracy = f"{100 * self.accuracy:.1f} ± {100 * self.standard_error:.1f}"
        return [accuracy, f"{100 * self.macro_f1:.1f}", f"{self.log_loss:.3f}"]

    def is_dominated_by(self, score: "Score") -> bool:
        """Return whether `score` is better by every metric."""
        return all(self.loss(metric) > score.loss(metric) for metric in METRICS)

    def loss(self, metric: str) -> float:
        """Return the loss by this metric; lower is better."""
        return self.log_loss if metric == "log_loss" else -float(getattr(self, metric))


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A rule with its score when each anchor is classified by the others."""

    rule: Rule
    score: Score


@dataclasses.dataclass(frozen=True)
class Choice:
    """A chosen rule and the reasons for it.

    Attributes:
        rule: the chosen rule.
        candidates: all candidates; empty if the anchors were too few to choose by.
        estimate: score of the rule on new texts; None if the anchors were too few to choose by.
        metric: the metric that candidates were compared by.
        num_anchors: the number of anchors that each score is a mean over.
        is_earlier: whether anchors were added after the choice.
    """

    rule: Rule
    candidates: tuple[Candidate, ...] = ()
    estimate: Score | None = None
    metric: str = METRICS[0]
    num_anchors: int = 0
    is_earlier: bool = False

    @property
    def line(self) -> str:
        """The choice in one line."""
        if self.is_earlier:
            return f"chosen before rows were added: {self.rule.words}; fit again to choose again"
        if self.estimate is None:
            return f"too few anchors to choose by; default: {self.rule.words}"
        return (
            f"chosen from {len(self.candidates)} candidates: {self.rule.words}; expected on new texts: {self.estimate.words}, "
            "if classes are as common as among the anchors"
        )

    def table(self) -> str:
        """Return the best candidate of each kind, best first, as a table."""
        leaders: dict[tuple[Any, ...], Candidate] = {}
        for candidate in sorted(self.candidates, key=lambda candidate: candidate.score.loss(self.metric)):
            rule = candidate.rule
            # The best of each distance for votes, of each penalty for probes, and of blends.
            kind = {"votes": rule.distance, "probe": rule.penalty}.get(rule.rule)
            leaders.setdefault((rule.rule, rule.demo_shots, kind), candidate)
        rows = [[leader.rule.words, *leader.score.cells] for leader in leaders.values()]
        heading = (
            f"each of {self.num_anchors} anchors classified by the others, ± standard errors; the best candidates "
            f"by {self.metric}, best first (the best of many scores is optimistic)"
        )
        return f"{heading}\n\n{tables.render(['', *COLUMNS], rows)}"

    def __str__(self) -> str:
        return self.line if not self.candidates or self.is_earlier else f"{self.table()}\n\n{self.line}"
