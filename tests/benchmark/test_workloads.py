"""Random weights, drawn lengths, a task's rows, and the samples that peers read."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from knnprompt_jax import errors
from knnprompt_jax.benchmark import peers, settings, subjects, workloads


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"prefix_tokens": 1020}, "1020 prefix tokens and 7 of a suffix do not fit: gpt2 reads 1024 tokens"),
        ({"peers": ("torch",)}, "peers=('torch',): choose from jax_one"),
        ({"growth_anchors": (64, 0)}, "growth_anchors=(64, 0): at least 1"),
        ({"task": "mr"}, "task='mr' needs data_dir and tokenizer"),
    ],
)
def test_mistakes(tiny, wrong, message):
    with pytest.raises(errors.UserError, match=re.escape(message)):
        own = settings.BenchmarkSettings(**{**tiny, **wrong})
        workloads.make(own, subjects.choose(own))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_are_random_in_their_own_dtype(tiny, dtype):
    own = settings.BenchmarkSettings(**tiny, dtype=dtype)
    model, _ = workloads.language_model(own, subjects.choose(own))
    leaves = dict(nnx.to_flat_state(nnx.state(model)))
    assert {leaf.dtype for leaf in jax.tree.leaves(nnx.state(model))} == {jnp.dtype(dtype)}
    stacked = np.asarray(leaves["blocks", "mlp", "up_kernel"][...], np.float32)
    assert stacked.std() == pytest.approx(0.02, rel=0.1) and not np.array_equal(stacked[0], stacked[1])
    assert np.asarray(leaves["final_norm", "scale"][...], np.float32).mean() == pytest.approx(1, abs=0.02)


def test_norms_that_add_one_have_weights_about_zero(tiny):
    own = settings.BenchmarkSettings(**tiny | {"heads": 4, "head_size": 6}, model_shape="gemma-3-270m")
    model, _ = workloads.language_model(own, subjects.choose(own))
    assert np.asarray(model.final_norm.scale[...]).mean() == pytest.approx(0, abs=0.02)


def test_drawn_lengths(tiny):
    own = settings.BenchmarkSettings(**tiny | {"anchors": 2003, "suffix_tokens": 29.4})
    workload = workloads.make(own, subjects.choose(own))
    lengths = [len(suffix) for suffix in workload.largest.suffixes]
    assert len(workload.largest.prefix_P) == 37 and len(lengths) == workload.prompts.num_prompts == 2003
    assert np.mean(lengths) == pytest.approx(29.4, rel=0.05)
    assert np.std(lengths) == pytest.approx(18, rel=0.1)
    assert min(lengths) >= 1 and max(lengths) <= 128
    assert workload.num_suffix_tokens == sum(lengths)


def test_task_rows(shared):
    """TREC's published rows at seed 1 with 8 demonstrations per class: the lengths that are known of its prompts."""
    places = {"data_dir": str(shared / "data"), "tokenizer": str(shared / "tokenizers" / "gpt2")}
    own = settings.BenchmarkSettings(task="trec", anchors=0, restore_dropped=True, **places)
    workload = workloads.make(own, subjects.choose(own))
    assert len(workload.largest.prefix_P) == 928 and workload.prompts.num_truncated == 0
    assert workload.num_suffix_tokens / workload.prompts.num_prompts == pytest.approx(14.5, abs=0.1)


def test_samples_have_the_mix_of_lengths(tiny):
    own = settings.BenchmarkSettings(
        **tiny | {"anchors": 997, "suffix_tokens": 29.4, "peer_prompts": 20, "peer_suffixes": 100, "peer_batch": 10}
    )
    workload = workloads.make(own, subjects.choose(own))
    sampled = peers.sample(workload, own)
    mean = workload.num_suffix_tokens / 997
    assert len(sampled.prompts) == 20 and sampled.num_prompts("torch_cached") == 100 and len(sampled.batches) == 10
    assert np.mean([len(tokens) for tokens in sampled.prompts]) == pytest.approx(37 + mean, rel=0.03)
    assert np.mean([len(suffix) for batch in sampled.batches for suffix in batch]) == pytest.approx(mean, rel=0.05)
    assert all(np.array_equal(tokens[:37], workload.largest.prefix_P) for tokens in sampled.prompts)
