"""Every query has a whole prompt of its own, truncated like any other."""

import numpy as np
import pytest

from knnprompt_jax.prompts import layout
from knnprompt_jax.tasks.task import Example, Task

TASK = Task("weather", ("sentence",), "Say: {sentence}\nMood:", ("0", "1"), ("bad", "fine"))
QUERIES = [Example({"sentence": text}, "0") for text in ("sun", "wind , rain", "")]
SHOWN = [
    [Example({"sentence": "storm"}, "0"), Example({"sentence": "clear and warm"}, "1")],
    [Example({"sentence": "a long long long long long grey day"}, "0"), Example({"sentence": "calm"}, "1")],
    [Example({"sentence": "rain"}, "0")],
]


def tokenize(texts: list[str]) -> list[list[int]]:
    return [[ord(character) for character in text] for text in texts]


def whole(shown: list[Example], query: Example) -> list[int]:
    text = "".join(TASK.render(one, one.label) + "\n" for one in shown) + TASK.render(query)
    return tokenize([text])[0]


@pytest.fixture(scope="module")
def wanted() -> list[list[int]]:
    return [whole(shown, query) for shown, query in zip(SHOWN, QUERIES, strict=True)]


@pytest.mark.parametrize("context", [307, 73])
def test_whole_prompts(wanted, context):
    prompts = layout.lay_out_each(TASK, SHOWN, QUERIES, tokenize, context)
    (group,) = prompts.groups
    assert not len(group.prefix_P) and group.index.tolist() == [0, 1, 2] and prompts.num_prompts == 3
    for tokens, want in zip(group.suffixes, wanted, strict=True):
        np.testing.assert_array_equal(tokens, want[-context:])
    assert prompts.num_truncated == sum(len(want) > context for want in wanted) == (0 if context == 307 else 1)


def test_each_prompt_drops_its_own_demonstrations(wanted):
    prompts = layout.lay_out_each(TASK, SHOWN, QUERIES, tokenize, 73, "drop")
    assert prompts.num_truncated == 0 and prompts.dropped_demonstrations == 1
    want = [wanted[0], whole(SHOWN[1][1:], QUERIES[1]), wanted[2]]
    assert [tokens.tolist() for tokens in prompts.groups[0].suffixes] == want
