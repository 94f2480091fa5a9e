"""Shared prefix and suffixes are the whole prompts' tokens, whatever the tokenizer and the truncation."""

import dataclasses
import re

import hypothesis
import pytest
from hypothesis import strategies

from knnprompt_jax.common import errors
from knnprompt_jax.inference.prompts import layout, word_tokenizer
from knnprompt_jax.models import tokenizers as model_tokenizers
from knnprompt_jax.tasks.task import Example, Task
from tests import prompt_groups
from tests.models import gguf_tokenizers

TASK = Task("mood", ("sentence",), "Text: {sentence}\nMood:", ("0", "1"), ("bad", "good"))
SHOWN = (("dull ", "0"), ("so bright", "1"), ("x", "0"))
DEMONSTRATIONS = [Example({"sentence": text}, label) for text, label in SHOWN]
QUERIES = [Example({"sentence": text}, "0", i, f"dev.jsonl:{i + 1}") for i, text in enumerate(["a b", "a b c", "d"])]


def characters(texts):
    """A token a character, no special token."""
    return [[ord(character) for character in text] for text in texts]


def with_start(texts):
    return [[1, *tokens] for tokens in characters(texts)]


def with_end(texts):
    return [[*tokens, 2] for tokens in characters(texts)]


def joining(texts):
    """A newline sticks to the word before it: no cut before the blank line is right for this one."""
    words = [re.findall(r"\w+\n*|\W", text) for text in texts]
    return [[sum(map(ord, word)) for word in text] for text in words]


@pytest.fixture(scope="module")
def byte_level():
    """A byte-level BPE in the manner of GPT-2's."""
    tokenizer = gguf_tokenizers.byte_level().tokenizer
    return lambda texts: [encoding.ids for encoding in tokenizer.encode_batch(texts)]


def whole_prompts(task, demonstrations, queries, tokenize):
    head = "".join(task.render(example, example.label) + "\n" for example in demonstrations)
    return tokenize([head + task.render(query) for query in queries])


def assert_longest_prefix(group):
    """The prefix cannot grow: some suffix has one token left, or the suffixes begin differently."""
    assert min(map(len, group.suffixes)) == 1 or len({int(suffix[0]) for suffix in group.suffixes}) > 1


@pytest.mark.parametrize("tokenize", [characters, with_start, with_end, joining])
@pytest.mark.parametrize("num_demonstrations", [0, 1, 3])
def test_prompts_are_tokenized_whole(tokenize, num_demonstrations):
    demonstrations = DEMONSTRATIONS[:num_demonstrations]
    prompts = layout.build_prompts(TASK, demonstrations, QUERIES, tokenize, context=1000)
    assert prompt_groups.tokens_of(prompts) == whole_prompts(TASK, demonstrations, QUERIES, tokenize)
    (group,) = prompts.groups
    assert_longest_prefix(group)
    assert (prompts.num_prompts, prompts.num_truncated) == (3, 0)
    (group,) = layout.build_prompts(TASK, demonstrations, QUERIES[:1], tokenize, context=1000).groups
    assert [len(suffix) for suffix in group.suffixes] == [1], "a single query keeps one token"
    assert layout.build_prompts(TASK, demonstrations, [], tokenize, context=10).groups == ()


def test_demonstrations_are_tokenized_once(byte_level):
    lengths = []

    def counting(texts):
        lengths.extend(map(len, texts))
        return byte_level(texts)

    layout.build_prompts(TASK, DEMONSTRATIONS, [QUERIES[0]] * 101, counting, context=1000)
    assert sum(length > 60 for length in lengths) < 10


PIECES = ("a", "bright", "it's", " ", "  ", "\n", "\n\n", "\t", "1", "é", ".", "<|im_end|>")
TEXTS = strategies.lists(strategies.sampled_from(PIECES), min_size=1, max_size=6).map("".join)


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(strategies.lists(TEXTS, max_size=3), strategies.lists(TEXTS, min_size=1, max_size=11))
def test_byte_level_bpe_gives_the_tokens_of_whole_prompts(byte_level, demonstrations, queries):
    demonstrations = [Example({"sentence": text}, "1") for text in demonstrations]
    queries = [Example({"sentence": text}, "0") for text in queries]
    prompts = layout.build_prompts(TASK, demonstrations, queries, byte_level, context=1000)
    assert prompt_groups.tokens_of(prompts) == whole_prompts(TASK, demonstrations, queries, byte_level)


@pytest.mark.parametrize("tokenize", [with_start, joining])
def test_left_truncation_keeps_the_last_tokens_in_a_group_without_prefix(tokenize):
    whole = whole_prompts(TASK, DEMONSTRATIONS, QUERIES, tokenize)
    context = len(whole[0])
    prompts = layout.build_prompts(TASK, DEMONSTRATIONS, QUERIES, tokenize, context)
    assert prompt_groups.tokens_of(prompts) == [tokens[-context:] for tokens in whole]
    kept, truncated = prompts.groups
    assert kept.number_N.tolist() == [0, 2] and kept.prefix_P.size
    assert truncated.number_N.tolist() == [1] and not truncated.prefix_P.size
    assert (prompts.num_truncated, prompts.num_oversized) == (1, 0)
    [length] = map(len, tokenize([TASK.render(QUERIES[0])]))
    shortest = layout.build_prompts(TASK, DEMONSTRATIONS, QUERIES, tokenize, length)
    assert (shortest.num_truncated, shortest.num_oversized) == (3, 1)


def test_prompts_without_tokens_are_refused():
    """The text without content of a calibration would otherwise cut all prompts of its group."""
    task = dataclasses.replace(TASK, template="{sentence}")
    queries = [Example({"sentence": text}, "", place=f"content-free {text!r}") for text in ("N/A", "", "[MASK]")]
    assert layout.build_prompts(task, [], queries, with_start, 99).groups
    assert layout.build_prompts(task, DEMONSTRATIONS, queries, characters, 99).groups
    with pytest.raises(errors.UserError, match="^content-free '': its prompt has no tokens"):
        next(layout.build_prompts(task, [], queries, characters, 99).blocks())


def test_each_query_follows_its_own_demonstrations():
    """A whole prompt each, truncated like any other."""
    shown = [DEMONSTRATIONS[:1], DEMONSTRATIONS, DEMONSTRATIONS[2:]]
    pairs = list(zip(shown, QUERIES, strict=True))
    whole = [whole_prompts(TASK, own, [query], characters)[0] for own, query in pairs]
    shorter = len(whole[1]) - 1
    for context, num_truncated in ((1000, 0), (shorter, 1)):
        prompts = layout.build_individual_prompts(TASK, shown, QUERIES, characters, context)
        assert prompt_groups.tokens_of(prompts) == [tokens[-context:] for tokens in whole]
        (group,) = prompts.groups
        assert not group.prefix_P.size and prompts.num_truncated == num_truncated
    assert layout.build_individual_prompts(TASK, [], [], characters, 73).groups == ()


@pytest.mark.parametrize("prefix", [True, False])
def test_label_words_have_the_tokens_that_they_have_in_prompts(tmp_path, prefix):
    """SentencePiece puts a blank before the first word of a text, and here before no other."""
    path = gguf_tokenizers.sentencepiece(prefix).convert(tmp_path, "llama" if prefix else "gemma3")
    tokenize = word_tokenizer.WordTokenizer(model_tokenizers.load(path))
    task = dataclasses.replace(TASK, label_words=("the movie", "terrible"))
    labels = layout.tokenize_continuations(tokenize, [f" {word}" for word in task.label_words])
    query = tokenize([task.render(QUERIES[0])])[0]
    labelled = tokenize([f"{task.render(QUERIES[0])} {word}" for word in task.label_words])
    assert [query + label for label in labels] == labelled
    assert layout.label_tokens(task, tokenize, "first") == [label[0] for label in labels]


def test_a_tokenizer_that_joins_words_to_a_colon_is_refused():
    with pytest.raises(errors.UserError, match="joins a colon to ' x'"):
        layout.tokenize_continuations(lambda texts: [[len(text)] for text in texts], [" x"])


def test_label_tokens_are_the_last_sub_tokens_in_class_order_and_differ():
    task = Task("mood", ("sentence",), "{sentence}:", ("0", "1", "2"), ("good", "bad!", "odd?"))
    assert layout.label_tokens(task, with_start) == [ord("d"), ord("!"), ord("?")]
    # Every word begins with the blank, a token of its own here.
    for which, message in [
        ("last", "the label words 'bad' and 'good' end in the same token .*: use label_token='first', "),
        ("first", "begin with the same token .*: use label_token='last', "),
    ]:
        with pytest.raises(errors.UserError, match=message):
            layout.label_tokens(TASK, with_start, which)
