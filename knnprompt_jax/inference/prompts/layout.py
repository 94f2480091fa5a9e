"""Prompts as tokens: one shared prefix with the demonstrations, and a short suffix for every example.

Prompts have the tokens of their whole text, as published: GPT-2 tokenizes a blank line at the end of a string
differently from one before a word. The demonstrations are still tokenized only once: the text is cut before their last
blank line, where a cut changes no token. If it does in one of up to 8 checked prompts, whole prompts are tokenized.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import logging

from knnprompt_jax.common import errors
from knnprompt_jax.tasks.task import Example, Task

Tokenize = Callable[[list[str]], list[list[int]]]
"""A function from texts to token ids, with the special tokens that the model expects (such as OPT's first token)."""

_CHECKED_PROMPTS = 8


@dataclasses.dataclass(frozen=True)
class PromptGroup:
    """Prompts with a common prefix of P tokens; prompt i is `prefix_P` followed by `suffixes[i]`, which is never empty.

    Attributes:
        prefix_P: the tokens of the prefix.
        suffixes: the tokens of each suffix.
        number_N: the number of each prompt among all prompts of its `Prompts`.
        num_outputs_N: the number of last tokens of each prompt whose states the pass returns; by default 1.
    """

    prefix_P: np.ndarray
    suffixes: tuple[np.ndarray, ...]
    number_N: np.ndarray
    num_outputs_N: np.ndarray | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens of all prompts; the prefix counts once."""
        return len(self.prefix_P) + sum(map(len, self.suffixes))

    def take(self, members_n: np.ndarray) -> "PromptGroup":
        """Return some of the prompts, in this order."""
        num_outputs_n = None if self.num_outputs_N is None else self.num_outputs_N[members_n]
        suffixes = tuple(self.suffixes[member] for member in members_n)
        return PromptGroup(self.prefix_P, suffixes, np.asarray(self.number_N)[members_n], num_outputs_n)


@dataclasses.dataclass(frozen=True)
class Prompts:
    """All prompts of one set of examples. Truncated prompts have an empty prefix.

    Attributes:
        groups: the prompts, in groups of a common prefix.
        num_prompts: the number of prompts.
        truncated_index: the indices of the prompts that lost their first tokens.
        num_oversized: the number of truncated prompts whose example exceeds the context even without demonstrations.
        demonstration_tokens: the tokens of the demonstrations without an example or the blank line before it. Whole
            prompts begin with them unless the tokenizer joins them to the following text.
    """

    groups: tuple[PromptGroup, ...]
    num_prompts: int
    truncated_index: tuple[int, ...] = ()
    num_oversized: int = 0
    demonstration_tokens: tuple[int, ...] = ()

    @property
    def num_truncated(self) -> int:
        """The number of prompts that lost their first tokens."""
        return len(self.truncated_index)

    @property
    def num_tokens(self) -> int:
        """Tokens of all prompts. The prefix of a group counts once."""
        return sum(group.num_tokens for group in self.groups)


def warn_truncated(num_truncated: int, num_prompts: int, context: int) -> None:
    """Log the number of prompts that exceed the context, if any does."""
    if num_truncated:
        message = "%d of %d prompts are longer than the context of %d tokens: their beginning is cut off"
        logging.warning(message, num_truncated, num_prompts, context)


def tokenize_with(tokenizer: Any) -> Tokenize:
    """Return the `Tokenize` of a `transformers` tokenizer, with the special tokens that it adds by default.

    It raises UserError if the tokenizer fails.
    """

    def tokenize(texts: list[str]) -> list[list[int]]:
        with errors.tokenizer_failures("the model's tokenizer fails on a text"):
            return tokenizer(texts, return_attention_mask=False, verbose=False)["input_ids"] if texts else []

    return tokenize


def count_tokens(tokenize: Tokenize, texts: Sequence[str]) -> np.ndarray:
    """Return the number of tokens of each text [N], without special tokens."""
    special = len(tokenize([""])[0])
    return np.array([len(tokens) - special for tokens in tokenize(list(texts))], int)


def build_prompts(
    task: Task,
    demonstrations: Sequence[Example],
    examples: Sequence[Example],
    tokenize: Tokenize,
    context: int,
) -> Prompts:
    """Build one prompt per example: all demonstrations, each followed by a blank line, then the example.

    Args:
        task: gives the template.
        demonstrations: the demonstrations of every prompt, in this order; may be empty.
        examples: the examples that end the prompts, as queries or anchors; their labels are not used.
        tokenize: the model's tokenizer.
        context: the number of tokens the model can read; longer prompts keep their last tokens, as published.

    Raises:
        UserError: a prompt has no tokens.
    """
    if not examples:
        return Prompts(groups=(), num_prompts=0)
    texts = [task.render(example) for example in examples]
    beginning, endings, demonstration_tokens = _tokenize_prompts(
        demonstration_text(task, demonstrations), texts, tokenize
    )
    lengths = np.array([len(beginning) + len(ending) for ending in endings])
    _check_not_empty(examples, lengths)
    fits = lengths <= context
    whole = np.flatnonzero(fits)
    truncated = np.flatnonzero(~fits)
    groups = []
    if whole.size:
        groups.append(_group_with_prefix(beginning, endings, whole))
    if truncated.size:
        groups.append(_group([], [(beginning + endings[i])[-context:] for i in truncated], truncated))
    return Prompts(
        groups=tuple(groups),
        num_prompts=len(examples),
        truncated_index=tuple(truncated.tolist()),
        num_oversized=sum(len(tokens) > context for tokens in tokenize([texts[i] for i in truncated])),
        demonstration_tokens=tuple(demonstration_tokens),
    )


def build_individual_prompts(
    task: Task,
    demonstrations: Sequence[Sequence[Example]],
    examples: Sequence[Example],
    tokenize: Tokenize,
    context: int,
) -> Prompts:
    """Build one prompt per example, each with its own demonstrations; see `build_prompts` for arguments and errors."""
    if not examples:
        return Prompts(groups=(), num_prompts=0)
    built = [
        build_prompts(task, own, [example], tokenize, context)
        for own, example in zip(demonstrations, examples, strict=True)
    ]
    groups = [group for prompts in built for group in prompts.groups]
    suffixes = tuple(np.concatenate([group.prefix_P, group.suffixes[0]]) for group in groups)
    whole = PromptGroup(np.array([], np.int32), suffixes, np.arange(len(examples)))
    return Prompts(
        groups=(whole,),
        num_prompts=len(examples),
        truncated_index=tuple(index for index, prompts in enumerate(built) if prompts.num_truncated),
        num_oversized=sum(prompts.num_oversized for prompts in built),
    )


def label_tokens(task: Task, tokenize: Tokenize, which: str = "last") -> list[int]:
    """Return one token per class, in class order.

    Args:
        task: gives the label words.
        tokenize: the model's tokenizer.
        which: "last" is the last sub-token of a blank and the label word, as in the paper's released code; "first" is
            the first, as in its text.

    Raises:
        UserError: two classes have the same token.
    """
    ids = unchecked_label_tokens(task, tokenize, which)
    if shared := describe_shared_token(task, ids, which):
        alternative = "first" if which == "last" else "last"
        raise errors.UserError(
            f"task {task.name!r}: {shared}, so their classes cannot be told apart: use label_token={alternative!r}, the "
            "method icl_multi_token or other words"
        )
    return ids


def unchecked_label_tokens(task: Task, tokenize: Tokenize, which: str) -> list[int]:
    """Return one token per class as `label_tokens` does, even if classes share a token."""
    position = -1 if which == "last" else 0
    return [tokens[position] for tokens in tokenize_continuations(tokenize, [f" {word}" for word in task.label_words])]


def describe_shared_token(task: Task, ids: Sequence[int], which: str) -> str:
    """Return which label words share their token, the first two of them; "" if the tokens of all classes differ."""
    words: dict[int, str] = {}
    for word, token in zip(task.label_words, ids, strict=True):
        if token in words:
            shared = "end in" if which == "last" else "begin with"
            return f"the label words {words[token]!r} and {word!r} {shared} the same token ({token})"
        words[token] = word
    return ""


def tokenize_continuations(tokenize: Tokenize, texts: Sequence[str]) -> list[list[int]]:
    """Return the tokens of each text as they follow another text, without special tokens.

    Each text is tokenized after a colon, because SentencePiece puts a blank before the first word of a whole text.

    Raises:
        UserError: the tokenizer joins the colon to a text.
    """
    colon, *with_colon = tokenize([":", *(f":{text}" for text in texts)])
    for text, tokens in zip(texts, with_colon, strict=True):
        if tokens[: len(colon)] != colon:
            raise errors.UserError(
                f"the tokenizer joins a colon to {text!r}, so that this text has no tokens of its own"
            )
    return [tokens[len(colon) :] for tokens in with_colon]


def demonstration_text(task: Task, demonstrations: Sequence[Example]) -> str:
    """Return the beginning of every prompt: each demonstration, followed by a blank line."""
    return "".join(task.render(example, example.label) + "\n" for example in demonstrations)


def _tokenize_prompts(demos: str, texts: list[str], tokenize: Tokenize) -> tuple[list[int], list[list[int]], list[int]]:
    """Return the tokens of whole prompts `demos + text`, where prompt i is beginning + endings[i].

    The cut is before the blank line that ends the demonstrations. Byte-level BPE never joins a newline to the word
    before it, so both sides have the tokens of the whole. If that fails for a checked prompt, whole prompts are
    tokenized and the beginning is empty.

    Returns:
        The beginning, the endings, and the tokens of `demos` without the last blank line.
    """
    beginning_text = demos.rstrip("\n")
    if not beginning_text:
        return [], tokenize([demos + text for text in texts]), []
    beginning, special = tokenize([beginning_text, ""])
    blank_line = demos[len(beginning_text) :]
    endings = [tokens[len(special) :] for tokens in tokenize([blank_line + text for text in texts])]
    by_length = np.argsort([len(text) for text in texts], kind="stable")
    checked = by_length[np.linspace(0, len(texts) - 1, min(_CHECKED_PROMPTS, len(texts))).astype(int)]
    whole = tokenize([demos + texts[i] for i in checked])
    if all(beginning + endings[i] == tokens for i, tokens in zip(checked, whole, strict=True)):
        return beginning, endings, beginning
    return [], tokenize([demos + text for text in texts]), beginning


def _check_not_empty(examples: Sequence[Example], lengths_N: np.ndarray) -> None:
    """Raise UserError if the prompt of an example has no tokens."""
    if not lengths_N.all():
        example = examples[int(np.argmin(lengths_N))]
        raise errors.UserError(
            f"{example.place or f'row {example.row}'}: its prompt has no tokens: add a text to the template, or use "
            "demonstrations"
        )


def _group_with_prefix(beginning: list[int], endings: list[list[int]], members: np.ndarray) -> PromptGroup:
    """Return the group of some prompts with their longest common prefix; every suffix keeps at least one token."""
    kept = [endings[i] for i in members]
    common = min(len(os.path.commonprefix(kept)), min(map(len, kept)) - 1)  # commonprefix accepts any sequences.
    return _group(beginning + kept[0][:common], [ending[common:] for ending in kept], members)


def _group(prefix: list[int], suffixes: list[list[int]], number_N: np.ndarray) -> PromptGroup:
    return PromptGroup(np.array(prefix, np.int32), tuple(np.array(suffix, np.int32) for suffix in suffixes), number_N)
