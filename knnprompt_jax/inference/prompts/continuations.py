"""Continuations to score: texts with shared prefixes whose last tokens need log-probabilities."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from knnprompt_jax.common import errors
from knnprompt_jax.inference.prompts import layout, packing


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
    """Prompt groups, each with its targets in the same order; texts are numbered across families.

    The model does not read the last token of a target, because nothing after it is scored. A text without a target is
    in no group. `num_truncated` texts lost tokens on the left.
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
    """Build the continuations of texts of at most `limit` tokens; longer texts keep their last `limit` tokens.

    The truncated texts of all families form one group with an empty prefix.

    Args:
        families: the texts.
        limit: the maximum number of tokens of a text, its target included.

    Raises:
        UserError: a target does not fit after at least one token of context.
        ValueError: no token precedes a target.
    """
    members_by_prefix: list[tuple[np.ndarray, list[_Member]]] = []
    truncated: list[_Member] = []
    num_texts = 0
    for family in families:
        whole = []
        for index, (context, target) in enumerate(zip(family.contexts, family.targets, strict=True), num_texts):
            if not len(target):
                continue
            _check_fits(index, family.prefix_P, context, target, limit)
            if len(family.prefix_P) + len(context) + len(target) <= limit:
                whole.append(_Member(index, context, target))
            else:
                context = np.concatenate([family.prefix_P, context])[len(target) - limit :]
                truncated.append(_Member(index, context, target))
        num_texts += len(family.targets)
        members_by_prefix.append((family.prefix_P, whole))
    members_by_prefix.append((np.array([], np.int32), truncated))
    filled = [(prefix_P, members) for prefix_P, members in members_by_prefix if members]
    return Continuations(
        groups=tuple(_group(prefix_P, members) for prefix_P, members in filled),
        targets=tuple(tuple(member.target for member in members) for _, members in filled),
        num_texts=num_texts,
        num_truncated=len(truncated),
    )


def target_tokens(targets: Sequence[np.ndarray], packed: packing.PackedPrompts) -> np.ndarray:
    """Return the targets' tokens [T, D, J] in the slots of their log-probabilities; unused slots are 0."""
    tokens_TDJ = np.zeros(packed.steps.output_positions_J.shape, np.int32)
    for target, target_slots in zip(targets, slots(targets, packed), strict=True):
        tokens_TDJ.ravel()[target_slots] = target
    return tokens_TDJ


def slots(targets: Sequence[np.ndarray], packed: packing.PackedPrompts) -> list[slice]:
    """Return the slots of each target's tokens, among the slots of all steps."""
    return [slice(last + 1 - len(target), last + 1) for target, last in zip(targets, packed.flat_slot_N, strict=True)]


@dataclasses.dataclass(frozen=True)
class _Member:
    """A text of a group: its index among all texts, its tokens after the prefix, and its target."""

    index: int
    context: np.ndarray
    target: np.ndarray


def _check_fits(index: int, prefix_P: np.ndarray, context: np.ndarray, target: np.ndarray, limit: int) -> None:
    if not len(prefix_P) + len(context):
        raise ValueError(f"text {index}: no token precedes its target")
    if len(target) >= limit:
        message = f"{len(target)} tokens to score do not fit in {limit} tokens after at least 1 token of context"
        raise errors.UserError(message)


def _group(prefix_P: np.ndarray, members: Sequence[_Member]) -> layout.PromptGroup:
    """Return the group of some texts.

    The token before a target belongs to the suffix, because its output predicts the target.
    """
    kept = len(prefix_P)
    if kept and not all(len(member.context) for member in members):
        kept -= 1
    suffixes = [np.concatenate([prefix_P[kept:], member.context, member.target[:-1]]) for member in members]
    return layout.PromptGroup(
        prefix_P=prefix_P[:kept],
        suffixes=layout.TokenRows.of(suffixes),
        number_N=np.array([member.index for member in members]),
        num_outputs_N=np.array([len(member.target) for member in members]),
    )
