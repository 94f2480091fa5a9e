"""Continuations have the log-probabilities of separate whole texts, however they are shared, packed or truncated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from knnprompt_jax.common import errors
from knnprompt_jax.inference import lm
from knnprompt_jax.inference.prompts import continuations as likelihood
from knnprompt_jax.models import head as head_lib

TOLERANCE = 1e-4
VOCABULARY = 211


def language_model(model, step_tokens=256):
    return lm.LanguageModel.from_decoder(model, range(VOCABULARY), step_tokens=step_tokens)


def make_family(prefix_length, lengths, seed=0, size=VOCABULARY):
    """A family of random texts; `lengths` are those of their contexts and targets."""
    rng = np.random.default_rng(seed)

    def tokens(length):
        return rng.integers(0, size, length).astype(np.int32)

    contexts, targets = zip(*[(tokens(before), tokens(after)) for before, after in lengths], strict=True)
    return likelihood.Family(tokens(prefix_length), contexts, targets)


def texts(families, limit=10**6):
    """All texts with how many of their last tokens are scored, cut on the left to the limit."""
    for family in families:
        for context, target in zip(family.contexts, family.targets, strict=True):
            yield np.concatenate([family.prefix_P, context, target])[-limit:], len(target)


def plain(log_probabilities, texts):
    """Log p of each text's last tokens; `log_probabilities` gives [T, V] of a whole sequence."""
    found = []
    for tokens, scored in texts:
        log_p_TV = log_probabilities(tokens)
        places = np.arange(len(tokens) - scored, len(tokens))
        found.append(log_p_TV[places - 1, tokens[places]] if scored else np.zeros(0))
    return found


def read_by(model):
    """One sequence at a time through the plain causal pass, padded on the right; logits and softmax in NumPy."""
    read, head_VE = jax.jit(model), np.asarray(model.head.rows_VE, np.float64)

    def log_probabilities(tokens):
        padded_T = np.pad(tokens, (0, -len(tokens) % 77))
        hidden_TE = read(jnp.asarray(padded_T)[None])[0, : len(tokens)]
        return special.log_softmax(np.asarray(hidden_TE, np.float64) @ head_VE.T, axis=-1)

    return log_probabilities


def assert_all_close(got, want):
    assert len(got) == len(want)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE, rtol=TOLERANCE)


FAMILIES = [
    make_family(43, [(3, 1), (1, 17), (11, 5), (2, 2)] * 3),
    make_family(0, [(1, 13), (7, 3)], 1),
    make_family(29, [(0, 7), (5, 0), (0, 1), (31, 19)], 2),
    make_family(1, [(0, 2), (0, 11)], 3),
]


@pytest.mark.parametrize("shape", ["gpt2", "opt-350m"])
def test_families_as_texts_read_alone(small_decoder, shape):
    model = small_decoder(shape)
    got = language_model(model).score(likelihood.build(FAMILIES, 307)).log_p
    want = plain(read_by(model), texts(FAMILIES))
    assert_all_close(got, want)
    assert len({len(log_p) for log_p in want}) > 5 and np.ptp(np.concatenate(want)) > 1


def test_truncated_texts_keep_their_last_tokens(small_decoder):
    model = small_decoder("opt-350m")
    continuations = likelihood.build(FAMILIES, 31)
    lengths = [len(tokens) for tokens, scored in texts(FAMILIES) if scored]
    assert 0 < continuations.num_truncated == sum(length > 31 for length in lengths) < len(lengths)
    got = language_model(model).score(continuations).log_p
    assert_all_close(got, plain(read_by(model), texts(FAMILIES, 31)))


def test_a_whole_context_is_used(small_decoder):
    """The last token is not read, so one more than the model's positions can be scored."""
    model = small_decoder("gpt2")
    ours, family = language_model(model, 1024), make_family(0, [(301, 7)])
    got = ours.score(likelihood.build([family], ours.context + 1)).log_p
    assert_all_close(got, plain(read_by(model), texts([family])))


def test_compilations_and_statistics(small_decoder):
    """Families share a compiled pass, those without a prefix another; what they cost is counted; progress adds up."""
    families = [make_family(length, [(3, 11)] * 31, length) for length in (41, 53, 0)]
    model, reports = language_model(small_decoder("gpt2"), 128), []
    model.score(likelihood.build(families, 307), lambda *done: reports.append(done))
    assert model.statistics.compilations == 3, "a prefix, and scores with and without one"
    assert model.statistics.prompts == 93
    assert model.statistics.prefix_tokens == 41 + 53
    # No target's last token is read, and shared leads are read once.
    num_texts, num_tokens = (sum(column) for column in zip(*reports, strict=True))
    assert num_texts == 93 and 93 * 11 < num_tokens <= 93 * 13


def test_nothing_to_score(small_decoder):
    model = language_model(small_decoder("gpt2"))
    assert model.score(likelihood.build([], 307)).log_p == []
    got = model.score(likelihood.build([make_family(5, [(0, 0), (3, 0)])], 307)).log_p
    assert [len(log_p) for log_p in got] == [0, 0]
    assert model.statistics.prompts == 0


def test_impossible_targets_are_refused():
    with pytest.raises(errors.UserError, match="31 tokens to score do not fit in 31 tokens"):
        likelihood.build([make_family(3, [(1, 31)])], 31)

    with pytest.raises(ValueError, match="text 1: no token precedes"):
        likelihood.build([make_family(0, [(1, 2), (0, 2)])], 31)


@pytest.mark.parametrize("tile", [7, 211, 4096])
@pytest.mark.parametrize("scale", [1, 300])
def test_any_tile(tile, scale):
    rng = np.random.default_rng(tile)
    h_JE = rng.normal(size=(23, 17)).astype(np.float32)
    head_VE = (scale * rng.normal(size=(211, 17))).astype(np.float32)
    head_VE[:, 3] -= 40 * scale  # All logits far from 0, as those of trained models are.
    want_JV = special.log_softmax(h_JE.astype(np.float64) @ head_VE.T.astype(np.float64), axis=-1)
    tokens_J = np.where(np.arange(23) % 3, np.arange(23) * 10 % 211, want_JV.argmax(-1))
    got_J, is_greatest_J = head_lib.Head(jnp.asarray(head_VE)).log_probabilities(h_JE, tokens_J, tile)
    np.testing.assert_allclose(got_J, want_JV[np.arange(23), tokens_J], rtol=1e-4, atol=1e-4 * scale)
    np.testing.assert_array_equal(is_greatest_J, tokens_J == want_JV.argmax(-1))
