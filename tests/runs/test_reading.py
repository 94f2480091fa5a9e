"""A model that reads no prompt twice: through whole comparisons and one call at a time."""

import dataclasses
import pathlib

import numpy as np
import pytest

from knnprompt_jax import lm
from knnprompt_jax.prompts import layout, packing
from knnprompt_jax.runs import comparison, reading, states_cache

TOKENS = [[5, 6, 7], [5, 8], [9] * 40, [5, 6, 1, 2, 3], [4]]


@pytest.fixture
def read(monkeypatch):
    """How many prompts each pass reads."""
    counts, states = [], lm.LanguageModel.states

    def counted(self, prompts, *arguments):
        counts.append(prompts.num_prompts)
        return states(self, prompts, *arguments)

    monkeypatch.setattr(lm.LanguageModel, "states", counted)
    return counts


def outcomes(records):
    return [
        (one.method, one.seed, one.predicted, one.lm_tokens, one.prompts, one.decided_by_rounding) for one in records
    ]


def prompts_of(tokens, prefix=()):
    group = layout.PromptGroup(
        np.array(prefix, np.int32), tuple(np.array(each, np.int32) for each in tokens), np.arange(len(tokens))
    )
    return layout.Prompts((group,), len(tokens))


@pytest.fixture
def model(small_decoder, tmp_path):
    """A small model without a cache, and the same with one."""
    plain = lm.LanguageModel(small_decoder("gpt2"), range(211), fingerprint="f", step_tokens=256)
    return plain, reading.CachedModel(plain, states_cache.StatesCache(tmp_path / "states", 2**20))


def test_other_methods_and_numbers_on_the_same_prompts_read_nothing(job, read):
    first = comparison.run(job)
    assert read == [14 + 13, 14 + 13]
    again = comparison.run(dataclasses.replace(job, output=job.output, methods="knn_l2,icl,knn"))
    assert len(read) == 2 and outcomes(again)[1:3] == outcomes(first)[:2]
    assert again[0].seconds["language_model"] == 0 and again[0].prompts_per_second == 0
    comparison.run(dataclasses.replace(job, shots=7))
    assert len(read) in (3, 4) and sum(read[2:]) < 2 * (10 + 13), "anchors of 9 shots are those of 7"


def test_passes_of_a_methods_own_are_kept_too(job, read):
    job = dataclasses.replace(job, methods="icl_ensemble,prompt_compose_bm25", seeds=(1,))
    first = comparison.run(job)
    count = len(read)
    again = comparison.run(job)
    assert len(read) == count > 2
    assert outcomes(again) == outcomes(first)


def test_without_a_cache_nothing_is_kept(job, read):
    job = dataclasses.replace(job, states_gb=0, seeds=(1,))
    first, second = comparison.run(job), comparison.run(job)
    assert len(read) == 2 and outcomes(first) == outcomes(second)
    assert not (pathlib.Path(job.output) / "states").exists()


@pytest.mark.parametrize("prefix", [(), (3, 1, 4)], ids=["whole", "shared prefix"])
def test_rows_are_those_of_the_plain_model(model, read, prefix):
    plain, cached = model
    want = plain.states(prompts_of(TOKENS, prefix))
    read.clear()
    reported, before = [], cached.statistics.tokens
    for tokens, new in ((TOKENS[:2], 2), (TOKENS[::-1], 3), (TOKENS, 0)):
        reported.clear()
        states = cached.states(prompts_of(tokens, prefix), None, lambda prompts, _: reported.append(prompts))
        places = [TOKENS.index(each) for each in tokens]
        np.testing.assert_allclose(states.hidden_NE, want.hidden_NE[np.array(places)], atol=2e-5)
        np.testing.assert_allclose(states.log_z_N, want.log_z_N[np.array(places)], atol=2e-5)
        assert sum(reported) == len(tokens)
        assert read[-1:] == [new] if new else len(read) == 2
    alone = [len(prefix) + sum(map(len, tokens)) for tokens in (TOKENS[:2], TOKENS, TOKENS)]
    shared = 1 + 2 * 3  # What packed suffixes begin with, in the first call and in the others.
    assert cached.statistics.tokens - before + cached.spared_tokens == sum(alone) - shared


def test_a_flipped_bit_is_read_anew(model, read):
    _, cached = model
    states = cached.states(prompts_of(TOKENS))
    (path,) = cached.cache.folder.iterdir()
    content = bytearray(path.read_bytes())
    content[content.index(np.asarray(states.hidden_NE)[0].tobytes()) + 2] ^= 1
    path.write_bytes(content)
    again = cached.states(prompts_of(TOKENS))
    assert read == [len(TOKENS)] * 2
    np.testing.assert_array_equal(again.hidden_NE, states.hidden_NE)


def test_a_packing_for_all_prompts_serves_those_that_are_left(model):
    """What is left may fill rows with more prompts than any row of the whole had."""
    plain, cached = model
    rng = np.random.default_rng(3)
    long = [rng.integers(0, 200, 90).tolist() for _ in range(8)]
    short = [[200 + number // 8, number % 8] for number in range(64)]
    mixed = [
        each
        for pair in zip(long, [short[at : at + 8] for at in range(0, 64, 8)], strict=True)
        for each in (pair[0], *pair[1])
    ]
    shape = packing.choose_shape(prompts_of(mixed).groups, 256)
    cached.states(prompts_of(long))
    states = cached.states(prompts_of(mixed), lambda group: shape)
    np.testing.assert_allclose(states.log_z_N, plain.states(prompts_of(mixed)).log_z_N, atol=2e-5)
    left = states_cache.without(prompts_of(mixed), np.array([each in long for each in mixed]))
    assert packing.most_reads(left.groups[0], shape.width, shape.rows) > shape.reads
