"""Methods with passes of their own: truncation of their prompts, and costs estimated beforehand."""

import dataclasses

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.methods import method, registry
from knnprompt_jax.settings import methods
from tests.methods import whole_texts

OPTIONS = {"demonstration_upper_bound": {"num_prompts": 2}}
OWN = ["icl_multi_token", "icl_ensemble", "prompt_compose_bm25", "demonstration_upper_bound"]


@pytest.mark.parametrize("name", OWN)
def test_long_prompts_are_refused_in_a_pass_of_the_methods_own(name, predict):
    problem = dataclasses.replace(whole_texts.trec(4, 5), truncation="error")
    with pytest.raises(errors.UserError, match=f"the context {whole_texts.CONTEXT}"):
        predict(name, problem, whole_texts.model(), **OPTIONS.get(name, {}))


@pytest.mark.parametrize("name", [*OWN, "noisy_channel", "icl_many_shot"])
def test_the_cost_is_known_beforehand(name):
    """Prompts exactly; tokens within a factor, for prefixes and common beginnings are read once."""
    problem, model, declared = whole_texts.trec(1, 2), whole_texts.model(), registry.get(name)
    settings = dataclasses.replace(declared.options(methods.MethodOptions()), **OPTIONS.get(name, {}))
    prompts = problem.build_prompts(problem.split.demonstrations, model.context)
    states = method.Context(problem, model, {}).read(prompts, "queries")
    counter = method.TokenCounter(
        lambda texts: np.array([len(whole_texts.tokens(text)) for text in texts]), model.context
    )
    before = model.statistics.tokens
    prediction = declared.run(method.Context(problem, model, {method.queries: states}), settings)
    cost = declared.cost(problem, counter, settings)
    assert cost.prompts == prediction.prompts and 0.8 < cost.tokens / (model.statistics.tokens - before) < 4


def test_the_cost_of_training():
    problem, declared = whole_texts.trec(0, 3), registry.get("fine_tuning")
    counter = method.TokenCounter(lambda texts: np.full(len(texts), 7), 1024)
    assert declared.cost(problem, counter, methods.FineTuningOptions(steps=5, batch=4)) == (3, 3 * 7 + 3 * 5 * 4 * 7)
