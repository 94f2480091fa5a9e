"""Demonstrations and queries laid out as tokens: one shared prefix, a short suffix for every query.

Whole prompts are what is tokenized, as published: GPT-2 makes other tokens of a blank line at the end of a string than
of one before a word, so demonstrations tokenized alone are not the published demonstrations. Only where that is shown to
give the same tokens is the text cut, inside the demonstrations, to spare tokenizing them once for each query.
"""

import bisect
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.tasks.task import Example, Task

Tokenize = Callable[[list[str]], list[list[int]]]
"""Texts to token ids, special tokens included as the model expects them (OPT starts with one, GPT-2 does not)."""

TRUNCATIONS = ("left", "error", "drop")
LABEL_TOKENS = ("last", "first")
_SHARED = {"last": "end in", "first": "begin with"}
_CHECKED_PROMPTS = 8


@dataclasses.dataclass(frozen=True)
class PromptGroup:
    """Prompts that share a prefix of P tokens; prompt i is `prefix_P` followed by `suffixes[i]`, which is never empty.

    `index` holds each prompt's place among the queries, `reads_N` after how many of its last tokens the model is asked
    what comes next: by default after the very last alone.
    """

    prefix_P: np.ndarray
    suffixes: tuple[np.ndarray, ...]
    index: np.ndarray
    reads_N: np.ndarray | None = None

    def take(self, members_n: np.ndarray) -> "PromptGroup":
        """Some of the prompts, in this order."""
        reads_n = None if self.reads_N is None else self.reads_N[members_n]
        suffixes = tuple(self.suffixes[member] for member in members_n)
        return PromptGroup(self.prefix_P, suffixes, np.asarray(self.index)[members_n], reads_n)


@dataclasses.dataclass(frozen=True)
class Prompts:
    """All prompts of one set of queries: those that are whole, then the truncated prompts, which have an empty prefix.

    `num_oversized` counts the truncated prompts whose query alone exceeds the context.
    `dropped_demonstrations` is how many were left out of every prompt, from the front; `demonstrations` are the tokens of the others
    alone, by which whole prompts begin unless the tokenizer joins them to what follows.
    """

    groups: tuple[PromptGroup, ...]
    num_prompts: int
    num_truncated: int = 0
    num_oversized: int = 0
    dropped_demonstrations: int = 0
    demonstrations: tuple[int, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Tokens of all prompts. The prefix of a group counts once."""
        return sum(len(group.prefix_P) + sum(map(len, group.suffixes)) for group in self.groups)


def tokenize_with(tokenizer: Any) -> Tokenize:
    """The `Tokenize` of a `transformers` tokenizer, with the special tokens it adds by default."""
    return lambda texts: tokenizer(texts, return_attention_mask=False, verbose=False)["input_ids"] if texts else []


def lay_out(
    task: Task,
    demonstrations: Sequence[Example],
    queries: Sequence[Example],
    tokenize: Tokenize,
    context: int,
    truncation: str = "left",
) -> Prompts:
    """Lays out one prompt per query: all demonstrations, each followed by a blank line, then the query.

    Args:
      task: gives the template.
      demonstrations: shown in this order in every prompt; there may be none.
      queries: the examples asked about; their labels are not used.
      tokenize: the model's tokenizer.
      context: the number of tokens the model can read.
      truncation: what becomes of prompts longer than the context. "left" keeps their last `context` tokens, as
        published; "error" refuses them; "drop" leaves out demonstrations, oldest first, until the longest prompt fits.

    Raises:
      UserError: on an unknown truncation, on a prompt too long under "error", and under "error" and "drop" on a query
        that does not fit even alone.
    """
    if truncation not in TRUNCATIONS:
        raise errors.UserError(f"truncation={truncation!r}: choose from {', '.join(TRUNCATIONS)}")
    if context < 1:
        raise errors.UserError(f"context={context}: at least 1 token is needed")
    if not queries:
        return Prompts(groups=(), num_prompts=0)
    texts = [task.render(query) for query in queries]

    def tokens_without(dropped: int) -> tuple[list[int], list[list[int]], list[int]]:
        return _tokenize_prompts(demonstration_text(task, demonstrations[dropped:]), texts, tokenize)

    dropped = _fewest_to_drop(tokens_without, len(demonstrations), context) if truncation == "drop" else 0
    head, tails, alone = tokens_without(dropped)
    lengths = np.array([len(head) + len(tail) for tail in tails])
    fits = lengths <= context
    if truncation != "left" and not fits.all():
        raise errors.UserError(_too_long(queries, lengths, context, truncation))
    whole, cut = np.flatnonzero(fits), np.flatnonzero(~fits)
    groups = [_sharing(head, tails, whole)] if whole.size else []
    if cut.size:
        groups.append(_group([], [(head + tails[i])[-context:] for i in cut], cut))
    return Prompts(
        groups=tuple(groups),
        num_prompts=len(queries),
        num_truncated=cut.size,
        num_oversized=sum(len(tokens) > context for tokens in tokenize([texts[i] for i in cut])),
        dropped_demonstrations=dropped,
        demonstrations=tuple(alone),
    )


def label_ids(task: Task, tokenize: Tokenize, which: str = "last") -> list[int]:
    """The token by which each class is read, in class order: the last sub-token of a blank and the label word, as in the
    paper's released code, or the first, as in its text.

    Raises:
      UserError: on an unknown `which`, and where two classes would be read by the same token.
    """
    if which not in LABEL_TOKENS:
        raise errors.UserError(f"label_token={which!r}: choose from {', '.join(LABEL_TOKENS)}")
    special = len(tokenize([""])[0])
    place = -1 if which == "last" else special
    ids = [tokens[place] for tokens in tokenize([f" {word}" for word in task.label_words])]
    words: dict[int, str] = {}
    for word, token in zip(task.label_words, ids, strict=True):
        if token in words:
            raise errors.UserError(
                f"task {task.name!r}: the label words {words[token]!r} and {word!r} {_SHARED[which]} the same token ({token}), "
                "so their classes cannot be told apart: use label_token='first' or 'last', multi-token label scoring or other words"
            )
        words[token] = word
    return ids


def demonstration_text(task: Task, demonstrations: Sequence[Example]) -> str:
    """What every prompt begins with: each demonstration, followed by a blank line."""
    return "".join(task.render(example, example.label) + "\n" for example in demonstrations)


def _tokenize_prompts(demos: str, texts: list[str], tokenize: Tokenize) -> tuple[list[int], list[list[int]], list[int]]:
    """Tokens of the whole prompts `demos + text` as (head, tails), prompt i is head + tails[i]; and of the demonstrations alone.

    The cut is before the blank line that ends the demonstrations. Byte-level BPE never joins a newline to the word
    before it, whatever follows, so there both sides tokenize as in the whole. For a tokenizer that behaves otherwise on
    any of the prompts checked, whole prompts are tokenized and the head is empty.
    """
    head_text, head = demos.rstrip("\n"), []
    if head_text:
        head, special = tokenize([head_text, ""])
        blank_line = demos[len(head_text) :]
        tails = [tokens[len(special) :] for tokens in tokenize([blank_line + text for text in texts])]
        by_length = np.argsort([len(text) for text in texts], kind="stable")
        checked = by_length[np.linspace(0, len(texts) - 1, min(_CHECKED_PROMPTS, len(texts))).astype(int)]
        whole = tokenize([demos + texts[i] for i in checked])
        if all(head + tails[i] == tokens for i, tokens in zip(checked, whole, strict=True)):
            return head, tails, head
    return [], tokenize([demos + text for text in texts]), head


def _sharing(head: list[int], tails: list[list[int]], members: np.ndarray) -> PromptGroup:
    """Some prompts with their longest common prefix split off, but for one token that every prompt keeps."""
    kept = [tails[i] for i in members]
    common = min(len(os.path.commonprefix(kept)), min(map(len, kept)) - 1)  # No path: any lists will do.
    return _group(head + kept[0][:common], [tail[common:] for tail in kept], members)


def _group(prefix: list[int], suffixes: list[list[int]], index: np.ndarray) -> PromptGroup:
    return PromptGroup(np.array(prefix, np.int32), tuple(np.array(suffix, np.int32) for suffix in suffixes), index)


def _fewest_to_drop(
    tokens_without: Callable[[int], tuple[list[int], list[list[int]], list[int]]], demonstrations: int, context: int
) -> int:
    """The least number of demonstrations to leave out, from the front, for every prompt to fit; all where that is not enough."""

    def fits(dropped: int) -> bool:
        head, tails, _ = tokens_without(dropped)
        return len(head) + max(map(len, tails)) <= context

    return bisect.bisect_left(range(demonstrations), True, key=fits)


def _too_long(queries: Sequence[Example], lengths: np.ndarray, context: int, truncation: str) -> str:
    """What is told of prompts that do not fit, where they may not be cut."""
    row = int(np.argmax(lengths))
    place, numbers = _place(queries[row]), f"{lengths[row]} tokens, the context {context}"
    if truncation == "drop":
        return f"{place}: its query alone has {numbers}; no demonstration can be dropped to make it fit"
    return (
        f"{place}: its prompt has {numbers} ({int((lengths > context).sum())} of {len(queries)} prompts are too long): "
        "use fewer demonstrations, or truncation 'left' or 'drop'"
    )


def _place(example: Example) -> str:
    return example.source or f"row {example.row}"
