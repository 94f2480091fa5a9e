"""Continuations to score: texts with shared prefixes whose last tokens need log-probabilities."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.prompts import layout, packing


@dataclasses.dataclass(frozen=True)
class Family:
    """Texts with a common prefix: text i is `prefix_P`, `contexts[i]`, then `targets[i]`, which is scored.

    A prefix, a context or a target may be empty, but at least one token must precede a target.
    """

    prefix_P: np.ndarray
    contexts: Sequence[np.ndarray]
    targets: Sequence[np.ndarray]


@dataclasses.dataclass(frozen=True)
class Continuations:
    """Groups that the model reads, each with its targets in the same order; texts are numbered across families.

    The model does not read the last token of a target, because nothing after it is scored. A text without a target is
    in no group. `num_truncated` texts have lost tokens on the left.
    """

    groups: tuple[layout.PromptGroup, ...]
    targets: tuple[tuple[np.ndarray, ...], ...]
    num_texts: int
    num_truncated: int = 0

    @property
    def num_tokens(self) -> int:
        """Tokens that the model reads. The prefix of a group counts once."""
        return sum(group.num_tokens for group in self.groups)


@dataclasses.dataclass(frozen=True)
class Scores:
    """Scores of each text's target tokens: log p in nats, float32, and whether no other token is likelier."""

    log_p: list[np.ndarray]
    is_greatest: list[np.ndarray]


def build(families: Iterable[Family], limit: int) -> Continuations:
    """Build the continuations of texts of at most `limit` tokens, targets included; longer texts keep their last `limit` tokens.

    The truncated texts of all families form one group with an empty prefix.

    Raises:
        UserError: a target does not fit after at least one token of context.
        ValueError: no token precedes a target.
    """
    groups, targets = [], []
    cut: list[tuple[int, np.ndarray, np.ndarray]] = []
    first = 0
    for family in families:
        whole = []
        for index, (context, target) in enumerate(zip(family.contexts, family.targets, strict=True), first):
            length = len(family.prefix_P) + len(context)
            if not len(target):
                continue
            if not length:
                raise ValueError(f"text {index}: nothing comes before its target")
            if length + len(target) <= limit:
                whole.append((index, context, target))
            elif len(target) < limit:
                context = np.concatenate([family.prefix_P, context])[len(target) - limit :]
                cut.append((index, context, target))
            else:
                raise errors.UserError(
                    f"{len(target)} tokens to score do not fit in {limit} tokens after at least 1 token of context"
                )
        first += len(family.targets)
        if whole:
            groups.append(_group(family.prefix_P, whole))
            targets.append(tuple(target for _, _, target in whole))
    if cut:
        groups.append(_group(np.array([], np.int32), cut))
        targets.append(tuple(target for _, _, target in cut))
    return Continuations(tuple(groups), tuple(targets), first, len(cut))


def place(targets: Sequence[np.ndarray], packed: packing.PackedPrompts) -> np.ndarray:
    """Return the targets' tokens [T, J] in the slots of their log-probabilities; unused slots are 0."""
    tokens_TJ = np.zeros(packed.output_positions_TJ.shape, np.int32)
    for target, its_slots in zip(targets, slots(targets, packed), strict=True):
        tokens_TJ.ravel()[its_slots] = target
    return tokens_TJ


def slots(targets: Sequence[np.ndarray], packed: packing.PackedPrompts) -> list[slice]:
    """Return the slots of each target's tokens, among the slots of all steps."""
    return [slice(last + 1 - len(target), last + 1) for target, last in zip(targets, packed.slot_N, strict=True)]


def _group(prefix_P: np.ndarray, members: Sequence[tuple[int, np.ndarray, np.ndarray]]) -> layout.PromptGroup:
    """Return the group of some texts. The token before a target stays in the suffix, because its output predicts the target."""
    spared = 0 if all(len(context) for _, context, _ in members) else 1
    kept = len(prefix_P) - spared if len(prefix_P) else 0
    return layout.PromptGroup(
        prefix_P=prefix_P[:kept],
        suffixes=tuple(np.concatenate([prefix_P[kept:], context, target[:-1]]) for _, context, target in members),
        index=np.array([index for index, _, _ in members]),
        num_outputs_N=np.array([len(target) for _, _, target in members]),
    )
