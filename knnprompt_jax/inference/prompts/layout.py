"""Prompts as tokens: one shared prefix with the demonstrations, and a short suffix for every example.

Prompts have the tokens of their whole text, as published: GPT-2 tokenizes a blank line at the end of a string
differently from one before a word. The demonstrations are still tokenized only once: the text is cut before their last
blank line, where a cut changes no token. If it does in one of up to 8 checked prompts, whole prompts are tokenized.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from knnprompt_jax.common import errors
from knnprompt_jax.tasks.task import Example, Task

Tokenize = Callable[[list[str]], list[list[int]]]
"""A function from texts to token ids, with the special tokens that the model expects (such as OPT's first token).

Its attribute `rows`, if it has one, is a faster function from texts to the same tokens as `TokenRows`.
"""

_CHECKED_PROMPTS = 8
_BLOCK_PROMPTS = 2048


class TokenRows(Sequence[np.ndarray]):
    """Rows of token ids, one after the other in one array.

    Attributes:
        tokens_T: the tokens of all rows, int32.
        offsets_N: the N + 1 offsets in `tokens_T`: row i begins at the i-th and ends before the next.
    """

    def __init__(self, tokens_T: np.ndarray, lengths_N: np.ndarray):
        self.tokens_T = tokens_T
        self.offsets_N = np.concatenate([[0], np.cumsum(lengths_N, dtype=np.int64)])

    @classmethod
    def of(cls, rows: Sequence[Sequence[int] | np.ndarray]) -> "TokenRows":
        """Return rows of tokens as one array."""
        lengths_N = np.fromiter(map(len, rows), np.int64, len(rows))
        return cls(np.fromiter(itertools.chain.from_iterable(rows), np.int32, lengths_N.sum()), lengths_N)

    @classmethod
    def join(cls, parts: Sequence["TokenRows"]) -> "TokenRows":
        """Return the rows of several parts, in order."""
        tokens_T = np.concatenate([part.tokens_T for part in parts])
        return cls(tokens_T, np.concatenate([part.lengths_N for part in parts]))

    @property
    def lengths_N(self) -> np.ndarray:
        return np.diff(self.offsets_N)

    def __len__(self) -> int:
        return len(self.offsets_N) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        index = range(len(self))[index]
        return self.tokens_T[self.offsets_N[index] : self.offsets_N[index + 1]]

    def take(self, members_n: np.ndarray) -> "TokenRows":
        """Return some of the rows, in this order."""
        lengths_n = self.lengths_N[members_n]
        return TokenRows(self.tokens_T[spans(self.offsets_N[members_n], lengths_n)], lengths_n)

    def drop_first(self, count: int) -> "TokenRows":
        """Return the rows without their first tokens, of which each has at least `count`."""
        lengths_N = self.lengths_N - count
        return TokenRows(self.tokens_T[spans(self.offsets_N[:-1] + count, lengths_N)], lengths_N)

    def prepend(self, prefix_P: np.ndarray) -> "TokenRows":
        """Return the rows with these tokens before each."""
        lengths_N = self.lengths_N + len(prefix_P)
        tokens_T = np.empty(lengths_N.sum(), np.int32)
        rows = TokenRows(tokens_T, lengths_N)
        starts_N = rows.offsets_N[:-1]
        tokens_T[starts_N[:, None] + np.arange(len(prefix_P))] = prefix_P
        tokens_T[spans(starts_N + len(prefix_P), self.lengths_N)] = self.tokens_T
        return rows


def spans(starts_N: np.ndarray, lengths_N: np.ndarray) -> np.ndarray:
    """Return the indices of several spans, one span after the other."""
    before_N = np.cumsum(lengths_N) - lengths_N
    return np.repeat(starts_N - before_N, lengths_N) + np.arange(lengths_N.sum())


@dataclasses.dataclass(frozen=True)
class PromptGroup:
    """Prompts with a common prefix of P tokens; prompt i is `prefix_P` followed by `suffixes[i]`, which is never empty.

    Attributes:
        prefix_P: the tokens of the prefix.
        suffixes: the tokens of each suffix.
        number_N: the index of each prompt in its `Prompts`.
        num_outputs_N: the number of last tokens of each prompt whose states the pass returns; by default 1.
    """

    prefix_P: np.ndarray
    suffixes: TokenRows
    number_N: np.ndarray
    num_outputs_N: np.ndarray | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens of all prompts; the prefix counts once."""
        return len(self.prefix_P) + len(self.suffixes.tokens_T)

    @property
    def longest(self) -> int:
        """The number of tokens of the longest suffix."""
        return int(self.suffixes.lengths_N.max())

    def take(self, members_n: np.ndarray) -> "PromptGroup":
        """Return some of the prompts, in this order."""
        num_outputs_n = None if self.num_outputs_N is None else self.num_outputs_N[members_n]
        return PromptGroup(self.prefix_P, self.suffixes.take(members_n), self.number_N[members_n], num_outputs_n)

    def shorten_prefix(self, num_tokens: int) -> "PromptGroup":
        """Return the same prompts with the first `num_tokens` tokens of the prefix; the others begin the suffixes."""
        suffixes = self.suffixes.prepend(self.prefix_P[num_tokens:])
        return dataclasses.replace(self, prefix_P=self.prefix_P[:num_tokens], suffixes=suffixes)


class Block(NamedTuple):
    """Some consecutive prompts of one set; truncated prompts have an empty prefix.

    Attributes:
        groups: the prompts, in groups of a common prefix.
        truncated_index: the indices of the prompts that lost their first tokens.
        num_oversized: the number of truncated prompts whose example exceeds the context even without demonstrations.
    """

    groups: tuple[PromptGroup, ...]
    truncated_index: tuple[int, ...] = ()
    num_oversized: int = 0


class Prompts:
    """All prompts of one set of examples, in blocks that are built when they are first needed.

    Attributes:
        num_prompts: the number of prompts.
        demonstration_tokens: the tokens of the demonstrations without an example or the blank line before it. Whole
            prompts begin with them unless the tokenizer joins them to the following text.
    """

    def __init__(
        self, num_prompts: int, build: Callable[[int], Block], num_blocks: int, demonstration_tokens: Sequence[int] = ()
    ):
        """Describe prompts; `build` returns the block of an index, and raises UserError on a prompt without tokens."""
        self.num_prompts = num_prompts
        self.demonstration_tokens = tuple(demonstration_tokens)
        self._build = build
        self._num_blocks = num_blocks
        self._built: list[Block] = []

    @classmethod
    def from_groups(
        cls, groups: Sequence[PromptGroup], num_prompts: int, demonstration_tokens: Sequence[int] = (), **truncated: Any
    ) -> "Prompts":
        """Return the prompts of these groups as one block; `truncated` are the other values of `Block`."""
        block = Block(tuple(groups), **truncated)
        return cls(num_prompts, lambda index: block, int(bool(groups)), demonstration_tokens)

    def blocks(self) -> Iterator[Block]:
        """Yield all blocks in order; one thread at a time may build them."""
        for index in range(self._num_blocks):
            if index == len(self._built):
                self._built.append(self._build(index))
            yield self._built[index]

    @property
    def groups(self) -> tuple[PromptGroup, ...]:
        """All prompts, in groups of a common prefix."""
        return join_groups([group for block in self.blocks() for group in block.groups])

    @property
    def truncated_index(self) -> tuple[int, ...]:
        """The indices of the prompts that lost their first tokens."""
        return tuple(index for block in self.blocks() for index in block.truncated_index)

    @property
    def num_truncated(self) -> int:
        """The number of prompts that lost their first tokens."""
        return len(self.truncated_index)

    @property
    def num_oversized(self) -> int:
        """The number of truncated prompts whose example exceeds the context even without demonstrations."""
        return sum(block.num_oversized for block in self.blocks())

    @property
    def num_tokens(self) -> int:
        """Tokens of all prompts. The prefix of a group counts once."""
        return sum(group.num_tokens for group in self.groups)


def join_groups(groups: Sequence[PromptGroup]) -> tuple[PromptGroup, ...]:
    """Join the groups that have the same prefix; none of them returns several states per prompt."""
    members = collections.defaultdict(list)
    for group in groups:
        members[group.prefix_P.tobytes()].append(group)
    return tuple(
        PromptGroup(
            parts[0].prefix_P,
            TokenRows.join([part.suffixes for part in parts]),
            np.concatenate([part.number_N for part in parts]),
        )
        for parts in members.values()
    )


def warn_truncated(num_truncated: int, num_prompts: int, context: int) -> None:
    """Log the number of prompts that exceed the context, if any does."""
    if num_truncated:
        message = "%d of %d prompts are longer than the context of %d tokens: their beginning is cut off"
        logging.warning(message, num_truncated, num_prompts, context)


def count_tokens(tokenize: Tokenize, texts: Sequence[str]) -> np.ndarray:
    """Return the number of tokens of each text [N], without special tokens."""
    special = len(tokenize([""])[0])
    return np.array([len(tokens) - special for tokens in tokenize(list(texts))], int)


def build_prompts(
    task: Task, demonstrations: Sequence[Example], examples: Sequence[Example], tokenize: Tokenize, context: int
) -> Prompts:
    """Build one prompt per example: all demonstrations, each followed by a blank line, then the example.

    Args:
        task: gives the template.
        demonstrations: the demonstrations of every prompt, in this order; may be empty.
        examples: the examples that end the prompts, as queries or anchors; their labels are not used.
        tokenize: the model's tokenizer.
        context: the number of tokens the model can read; longer prompts keep their last tokens, as in the released
            code.

    Raises:
        UserError: a prompt has no tokens.
    """
    builder = _Builder(task, demonstration_text(task, demonstrations), examples, tokenize, context)
    num_blocks = math.ceil(len(examples) / _BLOCK_PROMPTS)
    return Prompts(len(examples), builder.build, num_blocks, builder.demonstration_tokens)


def build_individual_prompts(
    task: Task,
    demonstrations: Sequence[Sequence[Example]],
    examples: Sequence[Example],
    tokenize: Tokenize,
    context: int,
) -> Prompts:
    """Build one prompt per example, each with its own demonstrations; see `build_prompts` for arguments and errors."""
    built = [
        build_prompts(task, own, [example], tokenize, context)
        for own, example in zip(demonstrations, examples, strict=True)
    ]
    whole = [group.shorten_prefix(0) for prompts in built for group in prompts.groups]
    groups = [dataclasses.replace(group, number_N=np.array([index])) for index, group in enumerate(whole)]
    return Prompts.from_groups(
        join_groups(groups),
        len(examples),
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
            message = f"the tokenizer joins a colon to {text!r}, so that this text has no tokens of its own"
            raise errors.UserError(message)
    return [tokens[len(colon) :] for tokens in with_colon]


def demonstration_text(task: Task, demonstrations: Sequence[Example]) -> str:
    """Return the beginning of every prompt: each demonstration, followed by a blank line."""
    return "".join(task.render(example, example.label) + "\n" for example in demonstrations)


class _Builder:
    """Builds the blocks of the prompts of some examples after the same demonstrations.

    The cut between demonstrations and examples is before the blank line that ends the demonstrations. Byte-level BPE
    never joins a newline to the word before it, so both sides have the tokens of the whole.
    """

    def __init__(self, task: Task, demos: str, examples: Sequence[Example], tokenize: Tokenize, context: int):
        self._task = task
        self._demos = demos
        self._examples = examples
        self._tokenize = tokenize
        self._context = context
        beginning = demos.rstrip("\n")
        self._blank_line = demos[len(beginning) :]
        self.demonstration_tokens: list[int] = []
        self._num_special = 0
        if beginning and examples:
            self.demonstration_tokens, special = tokenize([beginning, ""])
            self._num_special = len(special)
        # The prefix of the first block; later blocks use it if their prompts begin with it.
        self._prefix_P: np.ndarray | None = None
        self._cut_changes_tokens: bool | None = None

    def build(self, index: int) -> Block:
        """Return a block; raise UserError if one of its prompts has no tokens."""
        start = index * _BLOCK_PROMPTS
        examples = self._examples[start : start + _BLOCK_PROMPTS]
        texts = [self._task.render(example) for example in examples]
        beginning, endings = self._tokenize_block(texts)
        lengths_N = len(beginning) + endings.lengths_N
        _check_not_empty(examples, lengths_N)
        fits_N = lengths_N <= self._context
        whole = np.flatnonzero(fits_N)
        truncated = np.flatnonzero(~fits_N)
        groups = []
        if whole.size:
            groups.append(self._group_with_prefix(beginning, endings.take(whole), start + whole))
        if truncated.size:
            rows = [[*beginning, *endings[i].tolist()][-self._context :] for i in truncated]
            groups.append(PromptGroup(np.zeros(0, np.int32), TokenRows.of(rows), start + truncated))
        alone = self._tokenize([texts[i] for i in truncated])
        oversized = sum(len(tokens) > self._context for tokens in alone)
        return Block(tuple(groups), tuple((start + truncated).tolist()), oversized)

    def _tokenize_block(self, texts: list[str]) -> tuple[list[int], TokenRows]:
        """Return the tokens of whole prompts, where prompt i is beginning + endings[i].

        If a cut changes tokens in a checked prompt, whole prompts are tokenized and the beginning is empty.
        """
        if self._cut_changes_tokens is None:
            self._cut_changes_tokens = self._check_cut(texts)
        if self._cut_changes_tokens:
            return [], TokenRows.of(self._tokenize([self._demos + text for text in texts]))
        return self.demonstration_tokens, self._tokenize_endings(texts)

    def _tokenize_endings(self, texts: list[str]) -> TokenRows:
        """Return the tokens of prompts after those of the demonstrations."""
        make_rows = getattr(self._tokenize, "rows", lambda texts: TokenRows.of(self._tokenize(texts)))
        return make_rows([self._blank_line + text for text in texts]).drop_first(self._num_special)

    def _check_cut(self, texts: list[str]) -> bool:
        """Return whether a cut changes the tokens of a checked prompt: some of the first block, of all lengths."""
        by_length = sorted(texts, key=len)
        places = np.linspace(0, len(texts) - 1, min(_CHECKED_PROMPTS, len(texts))).astype(int)
        checked = [by_length[place] for place in places]
        whole = self._tokenize([self._demos + text for text in checked])
        return [[*self.demonstration_tokens, *ending.tolist()] for ending in self._tokenize_endings(checked)] != whole

    def _group_with_prefix(self, beginning: list[int], endings: TokenRows, number_N: np.ndarray) -> PromptGroup:
        """Return the group of some prompts with the prefix of the first block, or else the longest that they share.

        Every suffix keeps at least one token.
        """
        shared = _num_common(endings)
        prefix_P = np.array([*beginning, *endings[0][:shared]], np.int32)
        group = PromptGroup(prefix_P, endings.drop_first(shared), number_N)
        if self._prefix_P is None:
            self._prefix_P = prefix_P
        has_prefix = np.array_equal(prefix_P[: len(self._prefix_P)], self._prefix_P)
        return group.shorten_prefix(len(self._prefix_P)) if has_prefix else group


def _num_common(rows: TokenRows) -> int:
    """Return the number of leading tokens that all rows share; at least one token of each row remains."""
    starts_N = rows.offsets_N[:-1]
    for count in range(int(rows.lengths_N.min()) - 1):
        column_N = rows.tokens_T[starts_N + count]
        if (column_N != column_N[0]).any():
            return count
    return int(rows.lengths_N.min()) - 1


def _check_not_empty(examples: Sequence[Example], lengths_N: np.ndarray) -> None:
    """Raise UserError if the prompt of an example has no tokens."""
    if not lengths_N.all():
        example = examples[int(np.argmin(lengths_N))]
        raise errors.UserError(
            f"{example.place or f'row {example.row}'}: its prompt has no tokens: add a text to the template, or use "
            "demonstrations"
        )
