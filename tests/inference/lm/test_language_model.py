"""The pass: packed and whole prompts give one result; one compilation; padding has no say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.inference import lm, states
from knnprompt_jax.inference.lm import execution
from knnprompt_jax.inference.prompts import packing
from knnprompt_jax.inference.states import reading
from knnprompt_jax.models import attention
from tests import prompt_groups

TOLERANCE = 1e-4
VOCABULARY = 211
MIXED = prompt_groups.make_random(49, prefix_length=61)


def language_model(model, step_tokens=256):
    return lm.LanguageModel.from_decoder(model, range(VOCABULARY), step_tokens=step_tokens)


def states_of(model, prompts, shape=None):
    """Run the pass with one packing for all groups."""
    shape = shape or packing.choose_shape(prompts.groups, model.step_tokens)
    read_pass = lm.QueuedPass(model, prompts.groups, lambda group: shape)
    read_pass.wait()
    return read_pass.rows()


def begin_alike():
    """Return prompts whose suffixes begin alike.

    One suffix is a prefix of another and one is given twice. The prefix fills its padding.
    """
    (group,) = prompt_groups.make_random(6, 0, 64, (19, 5, 1, 3, 3, 7)).groups
    leads, tails = group.suffixes[:2], [np.zeros(0, np.int32), *group.suffixes[2:], group.suffixes[3]]
    suffixes = tuple(np.append(lead, tail) for lead in leads for tail in tails)
    return prompt_groups.make(suffixes, group.prefix_P)


def batched(model, prompts):
    """Hidden states of whole prompts, padded on the right to one batch, without a shared prefix."""
    sequences = prompt_groups.tokens_of(prompts)
    width = max(map(len, sequences))
    tokens_BT = np.stack([np.pad(sequence, (0, width - len(sequence))) for sequence in sequences])
    hidden_BTE = _whole(model, tokens_BT)
    return hidden_BTE[np.arange(len(sequences)), [len(sequence) - 1 for sequence in sequences]]


@jax.jit
def _whole(model, tokens_BT):
    return model(tokens_BT)


@pytest.mark.parametrize(
    ("shape", "prompts"),
    [("gpt2", begin_alike()), ("opt-350m", prompt_groups.make_random(1, 0, 1, (5,)))],
    ids=["suffixes that begin alike", "a prefix of one token and one prompt"],
)
def test_packed_and_whole_prompts_agree(small_decoder, shape, prompts):
    model = small_decoder(shape)
    packed, plain_NE = states.read(language_model(model), prompts), batched(model, prompts)
    np.testing.assert_allclose(packed.hidden_NE, plain_NE, atol=TOLERANCE)
    log_z_N = jax.nn.logsumexp(model.head.logits(plain_NE), -1)
    np.testing.assert_allclose(packed.log_z_N, log_z_N, atol=TOLERANCE)


def test_heads_taken_one_at_a_time(small_decoder, monkeypatch):
    """Attention takes as many heads together as its logits may be, which must not show, with a prefix and without."""
    model = small_decoder("gpt2")
    prompts = prompt_groups.make_random(5, 2, 13, (287, 5, 11))
    monkeypatch.setattr(attention, "LOGITS_ON_CPU", 1)
    assert attention.heads_together(model.config.num_heads, 2, "cpu") == 1 < model.config.num_heads
    packed = states.read(language_model(model), prompts)
    np.testing.assert_allclose(packed.hidden_NE, batched(model, prompts), atol=TOLERANCE)


def test_one_compilation_for_all_sets_of_a_shape(small_decoder):
    """Anchors and queries of different number, each taking several calls, share one compiled pass."""
    sets = [prompt_groups.make_random(67, 0, 61, (23,), seed) for seed in (0, 1)]
    sets.append(prompt_groups.make_random(22, 0, 53, (3, 19)))
    shape = packing.choose_shape([group for prompts in sets for group in prompts.groups], 128)
    model = language_model(small_decoder("gpt2"), step_tokens=128)
    for prompts in sets:
        steps = packing.pack(prompts.groups[0], shape).num_steps
        assert steps % execution.STEPS_PER_CALL, "the last call must be one that is not full"
        assert len(states_of(model, prompts, shape)) == prompts.num_prompts
        model.execution.free_prefix()
    assert steps < execution.STEPS_PER_CALL < packing.pack(sets[0].groups[0], shape).num_steps
    assert model.statistics.compilations == 2, "one for prefixes, one for suffixes"
    assert model.statistics.prompts == sum(prompts.num_prompts for prompts in sets)
    assert model.statistics.prefix_tokens == 61 + 61 + 53
    assert model.statistics.compile_seconds > 0


def test_padding_does_not_count(small_decoder, monkeypatch):
    """Whatever stands in padded tokens, in the prefix's and in rows', every bit of the states stays."""
    model = language_model(small_decoder("gpt2"))
    expected = states_of(model, MIXED)
    pack, rng = packing.pack, np.random.default_rng(5)

    def junk(array, is_padding):
        array[is_padding] = rng.integers(0, 90, array.shape)[is_padding]

    def pack_with_junk(group, shape, *options):
        packed = pack(group, shape, *options)
        assert (packed.steps.stops_BS == 0).any()
        junk(packed.prefix_P, np.arange(shape.prefix) >= packed.prefix_length)
        junk(packed.steps.tokens_BS, packed.steps.stops_BS == 0)
        junk(packed.steps.positions_BS, packed.steps.stops_BS == 0)
        return packed

    monkeypatch.setattr(packing, "pack", pack_with_junk)
    got = states_of(model, MIXED)
    np.testing.assert_array_equal(got, expected)
    assert np.isfinite(got).all()


@pytest.mark.parametrize(("sharpness", "tolerance"), [(1, TOLERANCE), (49, 0.1)])
def test_chunks_ahead_change_nothing(small_decoder, monkeypatch, sharpness, tolerance):
    """States do not depend on whether passes are queued ahead, and large logits do not overflow."""
    model, read = small_decoder("opt-350m"), []
    kernel = model.blocks.attention.q_kernel
    kernel.set_value(sharpness * kernel[...])
    prompts = prompt_groups.make_random(67, 0, 61, (23,))
    monkeypatch.setattr(reading, "_CHUNK_STEPS", 2)
    for platform in ("cpu", "gpu"):
        ours = language_model(model, step_tokens=128)
        monkeypatch.setattr(type(ours), "platform", platform)
        read.append(states.read(ours, prompts))
    for each in read:
        np.testing.assert_allclose(each.hidden_NE, batched(model, prompts), atol=tolerance)


def test_damaged_weights_are_refused(small_decoder):
    model = small_decoder("gpt2")
    model.positions.set_value(model.positions[...].at[62, 0].set(jnp.nan))
    with pytest.raises(errors.UserError, match=r"some next-token distributions are not finite.*float32"):
        states.read(language_model(model), MIXED)


def test_tokens_outside_the_vocabulary_are_refused(small_decoder):
    model = lm.LanguageModel.from_decoder(small_decoder("gpt2"), range(VOCABULARY + 1), name="m")
    with pytest.raises(errors.UserError, match=f"m: a prompt has token id {VOCABULARY}, but the model has "):
        states.read(model, prompt_groups.make([[3, VOCABULARY]]))


def test_unknown_dtype_is_refused_before_the_model_is_looked_for():
    with pytest.raises(errors.UserError, match="dtype='float16': choose from float32, bfloat16"):
        lm.LanguageModel.from_pretrained("no/such/model", dtype="float16")
