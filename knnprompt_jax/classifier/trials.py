"""The choice of a rule from rows: demonstrations drawn for each candidate number, their evidence, and tuning of a fitted classifier."""

import collections
import dataclasses
import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from knnprompt_jax import errors, parallel, rules
from knnprompt_jax import lm as lm_lib
from knnprompt_jax.classifier import inputs
from knnprompt_jax.prompts import layout, statistics
from knnprompt_jax.rules import choosing
from knnprompt_jax.rules.choice import Choice, Score
from knnprompt_jax.settings.classifiers import AUTO
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task

if TYPE_CHECKING:
    from knnprompt_jax.classifier.base import Classifier

_FEW = 2
_COUNTED = 2 * max(statistics.DEMO_SHOTS)  # Rows of a class that are enough to count how many fit the context.

Draw = tuple[Sequence[Example], Sequence[Example]]
"""Demonstrations and anchors."""


def draws(classifier: "Classifier", examples: Sequence[Example]) -> dict[int, Draw]:
    """Draw demonstrations, in the order of the prompt, for each candidate number per class, preferred numbers first.

    Each class gives as many rows, at most half of its own; None: the most that the model's context holds. The anchors are
    the other examples in their own order.

    Raises:
      UserError: there are no examples, too few anchors for k, or a number is negative.
    """
    if not examples:
        raise errors.UserError("X is empty: at least one row is needed")
    shots: Any = classifier.demo_shots
    if shots == AUTO:
        shots = candidate_shots(most_shots(classifier.task, examples, classifier.model), examples)
    drawn: dict[int, Draw] = {}
    for number in (shots or [shots]) if isinstance(shots, list | tuple) else [shots]:
        if number is None:
            number = most_shots(classifier.task, examples, classifier.model)
        if isinstance(number, bool) or not isinstance(number, numbers.Integral) or number < 0:
            raise errors.UserError(f"demo_shots={number!r}: choose None, or a whole number from 0 (no demonstrations)")
        demonstrations = splits.sample(examples, int(number), classifier.options_.random_state, share=0.5)
        rows = {example.row for example in demonstrations}
        anchors = [example for example in examples if example.row not in rows]
        drawn.setdefault(shots_of(demonstrations), (demonstrations, anchors))
    return possible(classifier, drawn)


def possible(classifier: "Classifier", draws: Mapping[int, Draw]) -> dict[int, Draw]:
    """Return the draws that have enough anchors for the classifier's k; raise UserError if there are none."""
    most = max((anchors for _, anchors in draws.values()), key=len)
    classifier.check(most)
    k = classifier.options_.k
    return {shots: draw for shots, draw in draws.items() if not isinstance(k, int) or k <= len(draw[1])}


def shots_of(demonstrations: Sequence[Example]) -> int:
    """Return the demonstrations per class, of the class that has most."""
    return max(collections.Counter(example.label for example in demonstrations).values(), default=0)


def most_shots(task: Task, examples: Sequence[Example], model: lm_lib.LanguageModel) -> int:
    """Return how many demonstrations per class the context holds, by the paper's rule (`statistics.compute_m_t`).

    0 if even one per class makes too many prompts too long.
    """
    counted = [example for members in splits.group_by_class(examples).values() for example in members[:_COUNTED]]
    limit = statistics.compute_m_t(task, counted, model.tokenize, model.context)
    return limit.m_t if round(100 * limit.truncated) <= statistics.MAX_TRUNCATION_PERCENT else 0


def candidate_shots(most: int, examples: Sequence[Example]) -> list[int]:
    """Return candidate numbers of demonstrations: `most` (at most a quarter of the largest class), 2, and 0."""
    most = min(most, max(map(len, splits.group_by_class(examples).values())) // 4)
    return sorted({most, min(_FEW, most), 0}, reverse=True)


def choose(
    classifier: "Classifier",
    draws: Mapping[int, Draw],
    grid: rules.Grid,
    metric: str,
    states: Mapping[int, lm_lib.States] | None = None,
) -> rules.Choice:
    """Choose the best candidate of the grid for draws with these numbers of demonstrations, preferred numbers first.

    Only the anchors that `rules.sample` returns are compared. They are read unless `states` has those of every draw.
    """
    samples = []
    for shots, (demonstrations, anchors) in draws.items():
        indices = rules.sample(anchors, classifier.options_.random_state)
        rows = [anchors[index] for index in indices]
        if states:
            rows_states = states[shots][np.array(indices, int)]
        else:
            rows_states = parallel.replicate(classifier.read(rows, demonstrations, classifier.candidate_layers))
        ids_N = np.array([example.row for example in rows])
        samples.append(rules.Sample(shots, ids_N, inputs.classes_of(classifier.task, rows), rows_states))
    return rules.choose(samples, classifier.model.head, classifier.label_ids(), grid, metric)


def compared(classifier: "Classifier", draws: Mapping[int, Draw]) -> list[Example]:
    """Return the anchors by which `choose` compares draws: those that it reads in every draw."""
    seed = classifier.options_.random_state
    sets = [[anchors[index] for index in rules.sample(anchors, seed)] for _, anchors in draws.values()]
    read = [rows for rows in sets if len(rows) >= choosing.FEWEST] or sets
    common = set.intersection(*({example.row for example in rows} for rows in read))
    return [example for example in read[0] if example.row in common]


@dataclasses.dataclass(frozen=True)
class Tuning:
    """A choice with the baselines on the same anchors, and what makes the scores less certain or less fair."""

    choice: Choice
    warnings: tuple[str, ...]
    baselines: Mapping[str, Score] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        warnings = (f"WARNING: {text}" for text in self.warnings)
        table = [self.choice.table(self.baselines), ""] if self.choice.candidates else []
        return "\n".join([*table, *warnings, self.choice.line])


def warnings(classifier: "Classifier", anchors: Sequence[Example], choice: Choice) -> Iterator[str]:
    """Yield the reasons to doubt the scores of a choice for these anchors."""
    counts = collections.Counter(example.label for example in anchors)
    # An anchor can win the vote for certain only if its class has more than k / 2 other anchors.
    enough = 2 if choice.rule.rule == "probe" else choice.rule.k // 2 + 2
    for label in classifier.task.labels:
        if counts[label] < enough:
            yield f"class {label!r} has too few anchors to be judged: {counts[label]}, at least {enough} are needed"
    if len(counts) == 1:
        yield "all anchors have one class: every prediction is right"
    texts = collections.Counter(tuple(example.fields.values()) for example in anchors)
    if repeated := sum(count for count in texts.values() if count > 1):
        yield f"{repeated} anchors have the same text as another, which makes them easier than new texts"
    if shared := _shared_label_words(classifier):
        yield f"no distance between label words was tried: {shared}"


def _shared_label_words(classifier: "Classifier") -> str:
    """Return which label words share a token, or an empty string."""
    try:
        layout.label_ids(classifier.task, classifier.model.tokenize, classifier.made_with("label_token"))
        return ""
    except errors.UserError as error:
        return str(error)
