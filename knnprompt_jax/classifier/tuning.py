"""Which rule does best on a fitted classifier's anchors, each classified by the others, without a pass of the model."""

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from knnprompt_jax import errors, tables
from knnprompt_jax.classifier import choosing, trials
from knnprompt_jax.classifier.core import Classifier
from knnprompt_jax.tasks.task import Example

KS = (1, 3, 5, 7, 9, 15, 25, 51)


@dataclasses.dataclass(frozen=True)
class Tuning:
    """What was tried on a classifier's anchors.

    Attributes:
      choice: the best and all candidates.
      warnings: what makes their scores less certain or less fair.
      beside: scores of what reads no states, by name.
    """

    choice: choosing.Choice
    warnings: tuple[str, ...]
    beside: Mapping[str, choosing.Score] = dataclasses.field(default_factory=dict)

    @property
    def best(self) -> choosing.Rule:
        return self.choice.rule

    def __str__(self) -> str:
        choice = self.choice
        shown: dict[tuple, choosing.Candidate] = {}
        for each in sorted(choice.candidates, key=lambda each: each.score.lack(choice.metric)):
            shown.setdefault(_kind(each.rule), each)
        rows = [[each.rule.words, *each.score.cells] for each in shown.values()]
        rows += [[name, *score.cells] for name, score in self.beside.items()]
        told = (
            f"each of {choice.num_anchors} anchors classified by the others, ± standard errors; the best of each kind by "
            f"{choice.metric}, best first, which flatters it"
        )
        table = tables.render(["", *choosing.COLUMNS], rows)
        return "\n".join([told, "", table, "", *(f"warning: {text}" for text in self.warnings), choice.line])


def tune(classifier: Classifier, ks: Sequence[int], metric: str) -> Tuning:
    """Tries every rule, distance, weighting and penalty, and all ks that there are anchors for, with the demonstrations that there are.

    Label words are not compared where they share a token.

    Raises:
      UserError: fewer than `choosing.FEWEST` anchors, or no k between 1 and the number of others.
    """
    count = len(classifier.store_)
    if count < choosing.FEWEST:
        raise errors.UserError(f"{count} anchors are too few to choose by: at least {choosing.FEWEST} are needed")
    if not any(1 <= k < count for k in ks):
        raise errors.UserError(f"ks={tuple(ks)}: choose from 1 to {count - 1}, the number of other anchors")
    grid = choosing.Grid(ks=tuple(sorted({k for k in ks if 1 <= k < count})))
    return of(classifier, list(classifier.anchors_.values()), trials.choose_again(classifier, grid, metric))


def of(classifier: Classifier, anchors: Sequence[Example], choice: choosing.Choice) -> Tuning:
    """The choice for these anchors, with warnings."""
    return Tuning(choice, tuple(_warnings(classifier, anchors, choice)))


def _kind(rule: choosing.Rule) -> tuple:
    """Candidates of which the best alone is shown: votes by the same distance, probes of the same penalty, blends."""
    return (
        rule.rule,
        rule.demo_shots,
        rule.distance if rule.rule == "knn" else "",
        rule.penalty if rule.rule == "probe" else 0,
    )


def _warnings(classifier: Classifier, anchors: Sequence[Example], choice: choosing.Choice) -> Iterator[str]:
    """What makes the scores doubtful."""
    k = choice.rule.k
    counts = collections.Counter(example.label for example in anchors)
    for label in classifier.task.labels:
        # Of the others of its class, an anchor needs more than half of k to be sure of the vote.
        if choice.rule.rule != "probe" and 2 * (counts[label] - 1) <= k:
            yield f"class {label!r} has {counts[label]} anchors, too few to be judged at k={k}"
        elif counts[label] < 2:
            yield f"class {label!r} has {counts[label]} anchors, too few to be judged"
    if len(counts) == 1:
        yield "there is one class only: every answer is right"
    texts = collections.Counter(tuple(example.fields.values()) for example in anchors)
    if repeated := sum(count for count in texts.values() if count > 1):
        yield f"{repeated} anchors have the text of another, which makes them easier than new texts"
    if shared := trials.shared_label_words(classifier):
        yield f"label words are not compared by: {shared}"
