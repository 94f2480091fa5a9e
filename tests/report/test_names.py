"""Titles and order of values in tables."""

from knnprompt_jax.report import names


def test_methods_follow_the_papers_order_and_ours_come_last():
    methods = ["knn_kl_labels", "knn", "knn_l2", "tfidf", "icl", "unknown"]
    assert names.ordered("method", methods) == ["icl", "tfidf", "knn_l2", "knn", "knn_kl_labels", "unknown"]


def test_models_of_different_folders_have_different_titles():
    titles = {
        "facebook/opt-2.7b": "opt-2.7b (2.7B)",
        "a/model": "a/model",
        "my/tiny": "my/tiny",
        "tiny": "the tiny model",
    }
    assert {name: names.model(name) for name in titles} == titles
