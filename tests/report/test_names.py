"""Titles and order of values in tables."""

import pytest

from knnprompt_jax.report import names


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("facebook/opt-2.7b", "opt-2.7b (2.7B)"),
        ("a/model", "a/model"),
        ("my/tiny", "my/tiny"),
        ("tiny", "the tiny model"),
    ],
)
def test_models_of_different_folders_have_different_titles(name, title):
    assert names.model(name) == title


def test_methods_follow_the_papers_order_and_ours_come_last():
    methods = ["knn_kl_labels", "knn", "knn_l2", "tfidf", "icl", "unknown"]
    assert names.ordered("method", methods) == ["icl", "tfidf", "knn_l2", "knn", "knn_kl_labels", "unknown"]
