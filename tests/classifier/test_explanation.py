"""Explanations: exact terms of both divergences, against NumPy; readable as text, and escaped as HTML."""

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import explanation
from knnprompt_jax.store.store import StoreOptions


def test_terms_are_those_of_the_divergence():
    rng = np.random.default_rng(3)
    p_V, k_V = rng.dirichlet(np.full(97, 0.1), 2) + 1e-9
    p_V, k_V = p_V / p_V.sum(), k_V / k_V.sum()
    got = explanation.divergence(np.log(p_V) - 3, np.log(k_V), 4, "v{}".format)  # Normalised again.
    terms_V = p_V * np.log(p_V / k_V)
    assert got.nats == pytest.approx(terms_V.sum(), rel=1e-12)
    largest = np.argsort(-terms_V)[:4]
    assert [token for token, _ in got.tokens] == [f"v{v}" for v in largest]
    np.testing.assert_allclose([nats for _, nats in got.tokens], terms_V[largest], rtol=1e-12)


@pytest.mark.parametrize("kind", ["factored", "dense"])
@pytest.mark.parametrize("direction", ["forward", "released"])
def test_neighbours_are_told_with_what_they_were_ranked_by(model, task, rows, kind, direction):
    X, y = rows
    options = {"k": 4, "demo_shots": 2, "store_options": StoreOptions(kind=kind), "distance": direction}
    classifier = kp.KNNPrompting(model, task, **options).fit(X[:67], y[:67])
    told = classifier.explain(X[70], num_tokens=model.config.vocab_size)
    distances, ids = classifier.kneighbors([X[70]])
    assert told.label == classifier.predict([X[70]])[0] and told.fields == {"sentence": X[70]}
    np.testing.assert_allclose(list(told.shares.values()), classifier.predict_proba([X[70]])[0])
    assert [near.id for near in told.neighbours] == ids[0].tolist()
    for near, distance in zip(told.neighbours, distances[0], strict=True):
        assert (near.fields["sentence"], near.label) == (X[near.id], y[near.id])
        assert near.distance == pytest.approx(distance)
        assert getattr(near, direction).nats == pytest.approx(distance, abs=2e-5)
        for divergence in (near.forward, near.released):
            assert sum(nats for _, nats in divergence.tokens) == pytest.approx(divergence.nats, abs=1e-9)


def test_texts_and_tokens_are_escaped_and_kept_short(model):
    task = kp.Task("page", ("text",), "{text}\nIt is", ("<b>", "&"), ("bad", "good"))
    texts = ["<script>alert(1)</script>", "x <i> y\n" * 5000, "\u05e9\u05dc\u05d5\u05dd", "a\x00b"]
    classifier = kp.KNNPrompting(model, task, k=4, demo_shots=0).fit(texts, ["<b>", "<b>", "&", "&"])
    told = classifier.explain(texts[0])
    page = told._repr_html_()
    assert "<script" not in page and "&lt;script&gt;" in page and "<i>" not in page and "<b>&lt;b&gt;</b>" in page
    assert len(page) < 6000 and max(map(len, str(told).splitlines())) < 250
    assert "label <b>, distance 0.0000, anchor 0" in str(told)
    assert "KL(text ‖ anchor)" in str(told)


def test_a_store_of_label_words_cannot_tell_tokens(model, task, rows):
    options = {"demo_shots": 0, "store_options": StoreOptions(kind="dense"), "distance": "partial"}
    classifier = kp.KNNPrompting(model, task, **options).fit(rows[0][:31], rows[1][:31])
    with pytest.raises(kp.UserError, match="keeps no distributions"):
        classifier.explain("a text")
