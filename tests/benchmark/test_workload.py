"""The model and the prompts of a benchmark: random weights, and the tokenizer that counts tokens."""

import dataclasses

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.benchmark import workload
from knnprompt_jax.models import hub
from knnprompt_jax.settings import benchmark as settings


def test_a_published_shape_has_random_weights(small):
    own = settings.BenchmarkSettings(**small | {"model": "EleutherAI/pythia-70m", "dtype": "bfloat16"})
    subject = workload.describe(own.model)
    model = workload.build(own, subject, num_anchors=1).model
    assert subject.path is None
    assert model.dtype == "bfloat16"
    assert model.config.num_layers == 6
    kernel = np.asarray(model.execution.decoder.blocks.mlp.up_kernel[...], np.float32)
    assert kernel.std() == pytest.approx(0.02, rel=0.1)
    assert not np.array_equal(kernel[0], kernel[1])


def test_smollm2_counts_tokens_if_the_model_s_tokenizer_is_not_available(small, monkeypatch):
    resolve = hub.resolve

    def offline(name, *arguments, **options):
        if name != "smollm2":
            raise errors.UserError("offline")
        return resolve(name)

    monkeypatch.setattr(hub, "resolve", offline)
    subject = workload.describe("opt-30b")
    assert subject == dataclasses.replace(workload.describe("facebook/opt-30b"), name="opt-30b")
    work = workload.build(settings.BenchmarkSettings(**small | {"model": "opt-30b"}), subject, num_anchors=3)
    assert (work.tokenizer_name, work.prompts.num_prompts, subject.config.num_layers) == ("smollm2", 3, 48)


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(small):
    own = settings.BenchmarkSettings(**small | {"model": "facebook/opt-125m"})
    subject = workload.describe("tiny")
    few = dataclasses.replace(subject, config=dataclasses.replace(subject.config, vocab_size=7))
    with pytest.raises(errors.UserError, match="tokenizer tiny: it has .* tokens and tiny has 7"):
        workload.build(own, few)
