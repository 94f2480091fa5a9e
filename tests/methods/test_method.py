"""The interface of methods: presets, and the truncation and costs of methods with passes of their own."""

import pytest

from knnprompt_jax import errors
from knnprompt_jax.methods import all_methods
from knnprompt_jax.store.search import KNNOptions
from tests.methods import whole_texts

SMALL = {"demonstration_upper_bound": {"num_prompts": 2}}
OWN_PASSES = ["icl_multi_token", "icl_ensemble", "prompt_compose_bm25", "demonstration_upper_bound"]


def test_a_preset_takes_the_options_of_its_base_and_keeps_its_own_values():
    settings = all_methods.MethodOptions(knn=KNNOptions(k=7, distance="reverse_kl"))
    assert all_methods.get("knn_l2").options(settings) == KNNOptions(k=7, distance="l2")
    assert all_methods.get("knn").options(settings) == settings.knn


@pytest.mark.parametrize("name", OWN_PASSES)
def test_a_methods_own_pass_refuses_long_prompts(name, predict):
    problem = whole_texts.trec(4, 5, truncation="error")
    with pytest.raises(errors.UserError, match=f"the context {whole_texts.CONTEXT}"):
        predict(name, problem, whole_texts.model(), **SMALL.get(name, {}))
