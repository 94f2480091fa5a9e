"""Task statistics: by hand on made rows, and against the paper's appendix."""

import json

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.prompts import layout, statistics
from knnprompt_jax.tasks import catalogue, sources
from knnprompt_jax.tasks.task import Example, Task

TASK = Task("mood", ("sentence",), "{sentence}:", ("0", "1"), ("b", "g"))


def with_start(texts):
    return [[1, *map(ord, text)] for text in texts]


# A labelled text has 3 + 1 + 2 + 1 characters, the blank line one more; a query 4 and the start token.
TRAIN = [Example({"sentence": "abc"}, label) for label in "0" * 7 + "1" * 3]


@pytest.mark.parametrize(
    "context, expected",
    [
        (21, (1, 0.0, 1)),
        (20, (1, 1.0, 1)),
        (37, (2, 0.0, 2)),
        (53, (3, 0.0, 2)),
        (61, (4, 0.0, 4)),
        (10**6, (7, 0.0, 2)),
    ],
)
def test_limits_by_hand(context, expected):
    assert statistics.compute_m_t(TASK, TRAIN, with_start, context) == expected


def test_truncation_is_the_share_over_draws_and_queries():
    queries = [Example({"sentence": "x" * length}, "0") for length in (3, 3, 3, 4)]
    assert statistics.compute_m_t(TASK, TRAIN, with_start, 37, queries) == (1, 0.0, 1)
    assert statistics.compute_m_t(TASK, TRAIN, with_start, 21, queries) == (1, 0.25, 1)


def test_average_template_tokens_leave_out_the_newline_and_special_tokens():
    described = statistics.describe(TASK, TRAIN, TRAIN, with_start, [21, 37])
    assert (described.task, described.num_classes, described.average_template_tokens) == ("mood", 2, 6.0)
    assert [limit.max_shots for limit in described.limits.values()] == [1, 2]


def test_no_rows_are_refused():
    with pytest.raises(errors.UserError, match="no train row"):
        statistics.compute_m_t(TASK, [], with_start, 100)


@pytest.mark.parametrize("name, context", [("mood", 1024), ("sst5", 1024), ("trec", 512)])
def test_only_the_papers_settings_have_a_published_m_t(name, context):
    assert statistics.max_shots_in_context(name, context) is None


@pytest.fixture(scope="module")
def gpt2(shared):
    transformers = pytest.importorskip("transformers")
    return layout.tokenize_with(transformers.AutoTokenizer.from_pretrained(shared / "tokenizers" / "gpt2"))


@pytest.fixture(scope="module")
def paper(shared):
    return json.loads((shared / "paper" / "tables.json").read_text())["max_shots"]


def column(paper, name):
    return [task.lower() for task in paper["tasks"]].index(name)


@pytest.mark.parametrize("name", catalogue.PAPER_TASKS)
def test_published_m_t_is_the_papers(paper, name):
    for context, table in paper["context"].items():
        assert statistics.max_shots_in_context(name, int(context)) == table["M_T"][column(paper, name)]


# The paper prints MR's 14 shots at 1024 tokens with CR's 4 %; 14 of MR's shots are truncated in a third of the prompts.
KNOWN_DIFFERENCES = {("mr", "1024"): 13, ("cr", "2048"): 29}


@pytest.mark.parametrize(
    "name",
    [
        "cb",
        "cr",
        "mr",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("sst2", "subj", "mpqa", "agnews", "rte", "trec")),
    ],
)
def test_statistics_agree_with_the_papers_appendix(shared, gpt2, paper, name):
    task, data_dir = catalogue.get(name), str(shared / "data")
    train = sources.load_rows(task, "train", data_dir=data_dir, restore_dropped=True)
    queries = sources.load_rows(task, "dev_subsample", data_dir=data_dir)
    described = statistics.describe(task, train, queries, gpt2, [1024, 2048])
    place = column(paper, name)
    assert described.num_classes == paper["num_classes"][place]
    assert described.average_template_tokens == pytest.approx(paper["average_template_tokens"][place], abs=0.1)
    for context, table in paper["context"].items():
        limit = described.limits[int(context)]
        assert limit.max_shots == KNOWN_DIFFERENCES.get((name, context), table["max_shots"][place])
        assert limit.m_t == table["M_T"][place]
        assert np.isclose(100 * limit.truncated, table["truncation_percent"][place], atol=2.5)
