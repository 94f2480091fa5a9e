"""A deterministic model gives a prompt the same bits, whatever the other prompts, their order, number and chunks."""

import hypothesis
import jax
import numpy as np
import pytest
from hypothesis import strategies

from knnprompt_jax.inference import lm
from knnprompt_jax.inference import states as states_lib
from knnprompt_jax.inference.prompts import layout
from tests import prompt_groups

VOCABULARY = 211
RNG = np.random.default_rng(3)
HEAD = tuple(RNG.integers(0, VOCABULARY, 53).tolist())
# Lengths on either side of every row width; a copy of a text, and one that begins another; two without the head.
SUFFIXES = [RNG.integers(0, VOCABULARY, length) for length in (1, 2, 13, 16, 17, 29, 32, 33, 5, 11)]
TEXTS = [np.array([*HEAD, *suffix], np.int32) for suffix in [*SUFFIXES, SUFFIXES[5], SUFFIXES[5][:19]]]
TEXTS += [RNG.integers(0, VOCABULARY, 61).astype(np.int32) for _ in range(2)]


def make(model, **options):
    return lm.LanguageModel.from_decoder(model, range(VOCABULARY), step_tokens=256, **options)


def prompts(places, shared):
    """Return these texts as prompts of one batch.

    Their shared tokens are their prefix, limited to `shared` tokens.
    """
    groups = []
    for is_whole in (True, False):
        members = [place for place, text in enumerate(places) if (text < len(TEXTS) - 2) == is_whole]
        prefix = np.array(HEAD[: shared * is_whole], np.int32)
        if members:
            suffixes = [TEXTS[places[member]][len(prefix) :] for member in members]
            groups.append(prompt_groups.make_group(suffixes, prefix, members))
    return layout.Prompts.from_groups(groups, len(places), HEAD)


def bits(states, rows=slice(None)):
    return [np.asarray(leaf)[rows].tobytes() for leaf in jax.tree.leaves(states)]


@pytest.fixture(scope="module")
def models(small_decoder):
    """A deterministic model and an ordinary one of the same weights, and the states of all texts by each."""
    decoder = small_decoder("opt-350m")
    both = make(decoder, deterministic=True), make(decoder)
    return *both, *(states_lib.read(model, prompts(range(len(TEXTS)), len(HEAD))) for model in both)


def test_states_are_those_of_the_ordinary_pass(models):
    for ours, plain in zip(*map(jax.tree.leaves, models[2:]), strict=True):
        np.testing.assert_allclose(ours, plain, atol=1e-4)


ANY = strategies.integers(0, len(TEXTS) - 1)
BATCHES = strategies.sampled_from([1, 7, 149]).flatmap(lambda size: strategies.lists(ANY, min_size=size, max_size=size))


@hypothesis.settings(max_examples=10, deadline=None)
@hypothesis.given(BATCHES, strategies.integers(0, len(HEAD)))
def test_no_other_prompt_counts(models, places, shared):
    """Any texts, in any order, repeated any number of times, over several steps, with any common prefix split off."""
    model, _, all_states, _ = models
    assert bits(states_lib.read(model, prompts(places, shared))) == bits(all_states, np.array(places))


def test_the_option_batch_does_not_count(models, small_decoder):
    model, _, all_states, _ = models
    other = lm.LanguageModel.from_decoder(small_decoder("opt-350m"), range(211), step_tokens=1000, deterministic=True)
    assert bits(states_lib.read(other, prompts([2, 9], 53))) == bits(all_states, [2, 9])
