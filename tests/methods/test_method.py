"""The interface of methods."""

from knnprompt_jax.datastore.search import KNNOptions
from knnprompt_jax.methods import all_methods


def test_a_variant_takes_the_options_of_its_method_and_keeps_its_own_values():
    settings = all_methods.MethodOptions(knn=KNNOptions(k=7, distance="reverse_kl"))
    assert all_methods.get("knn_l2").options(settings) == KNNOptions(k=7, distance="l2")
    assert all_methods.get("knn").options(settings) == settings.knn
