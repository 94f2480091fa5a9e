"""The interface of methods: presets, and the truncation and costs of methods with passes of their own."""

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.methods import method, registry
from knnprompt_jax.settings import classifiers, methods
from tests.methods import synthetic, whole_texts

SMALL = {"demonstration_upper_bound": {"num_prompts": 2}}
OWN_PASSES = ["icl_multi_token", "icl_ensemble", "prompt_compose_bm25", "demonstration_upper_bound"]


def test_a_preset_takes_the_options_of_its_base_and_keeps_its_own_values():
    settings = methods.MethodOptions(knn=classifiers.KNNOptions(k=7, distance="reverse_kl"))
    assert registry.get("knn_l2").options(settings) == classifiers.KNNOptions(k=7, distance="l2")
    assert registry.get("knn").options(settings) == settings.knn


@pytest.mark.parametrize("name", OWN_PASSES)
def test_a_methods_own_pass_refuses_long_prompts(name, predict):
    problem = whole_texts.trec(4, 5, truncation="error")
    with pytest.raises(errors.UserError, match=f"the context {whole_texts.CONTEXT}"):
        predict(name, problem, whole_texts.model(), **SMALL.get(name, {}))


@pytest.mark.parametrize("name", [*OWN_PASSES, "noisy_channel", "icl_many_shot"])
def test_the_cost_is_known_before_the_model_reads(name):
    """Prompts are exact. Tokens are within a factor, because common beginnings are read only once."""
    problem = whole_texts.trec(1, 2)
    model = whole_texts.model()
    declared = registry.get(name)
    options = synthetic.options_of(name, **SMALL.get(name, {}))
    counter = method.TokenCounter(
        lambda texts: np.array([len(whole_texts.tokens(text)) for text in texts]), model.context
    )
    cost = declared.cost(problem, counter, options)
    prompts = problem.build_prompts(problem.split.demonstrations, problem.evaluation, model.context)
    states = method.Inputs(problem, model, {}).read(prompts, "queries")
    earlier_tokens = model.statistics.tokens
    prediction = declared.predict(method.Inputs(problem, model, {method.QUERIES: states}), options)
    assert cost.prompts == prediction.prompts
    assert 0.8 < cost.tokens / (model.statistics.tokens - earlier_tokens) < 4
