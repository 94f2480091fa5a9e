"""Explanations: exact parts of the distance that ranks, what words contribute, and neither acts where it is shown."""

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import explanation
from knnprompt_jax.datastore import StoreOptions

CASES = [("factored", "kl"), ("dense", "reverse_kl_labels"), ("dense", "l2")]


@pytest.mark.parametrize(("kind", "distance"), CASES)
def test_neighbours_are_explained_by_the_distance_that_ranks_them(model, task, rows, kind, distance):
    X, y = rows
    options = {"k": 4, "demo_shots": 2, "store_options": StoreOptions(kind=kind), "distance": distance}
    classifier = kp.KNNPrompting(model, task, **options).fit(X[:67], y[:67])
    found = classifier.explain(X[70], num_tokens=model.config.vocab_size)
    distances, ids = classifier.kneighbors([X[70]])
    assert found.label == classifier.predict([X[70]])[0] and found.fields == {"sentence": X[70]}
    np.testing.assert_allclose(list(found.shares.values()), classifier.predict_proba([X[70]])[0])
    assert [near.id for near in found.neighbours] == ids[0].tolist()
    for near, measured in zip(found.neighbours, distances[0], strict=True):
        assert (near.fields["sentence"], near.label) == (X[near.id], y[near.id])
        assert near.distance == pytest.approx(measured, abs=2e-5)
        if distance == "l2":
            assert near.reasons == ()
        else:
            assert sum(part.nats for part in near.reasons) == pytest.approx(measured, abs=2e-5)
    if "labels" in distance:
        assert {part.text for part in found.neighbours[0].reasons} == set(task.label_words)
    elif distance != "l2":
        texts = [part.text for part in found.neighbours[0].reasons]
        assert len(texts) == len(set(texts)) < model.config.vocab_size, "tokens that read the same are one"
        assert sum(part.after_text for part in found.neighbours[0].reasons) == pytest.approx(1)


def test_words_contribute_what_the_label_loses_without_them(model, task, rows):
    X, y = rows
    classifier = kp.AutoClassifier(model, task, experts=("knn", "labels"), demo_shots=0).fit(X[:67], y[:67])
    found = classifier.explain(X[71])
    titles = {"knn, no demonstrations", "labels, no demonstrations"}
    assert {opinion.partition(":")[0] for opinion in found.opinions} == titles
    assert f"experts alone: {found.opinions[0]}; " in str(found)
    words = X[71].split()
    assert [part.text for part in found.parts] == words
    texts = [" ".join(words[:place] + words[place + 1 :]) for place in range(len(words))]
    column = classifier.classes_.tolist().index(found.label)
    probabilities = classifier.predict_proba([X[71], *texts])[:, column]
    expected = probabilities[0] - probabilities[1:]
    np.testing.assert_allclose([part.contribution for part in found.parts], expected, atol=1e-4)
    assert np.ptp(expected) > 0.01
    assert found.neighbours and not any(near.reasons for near in found.neighbours), "tokens are listed only on request"


def test_a_pool_without_experts_explains_no_opinions(model):
    """Labels that have nothing to do with the texts leave every expert without a share."""
    classifier = kp.AutoClassifier(model, experts=("means",), demo_shots=0)
    classifier.fit([f"text {number}" for number in range(12)], list("xyyx" * 3))
    assert not classifier.fitted_.pool.choice.used
    found = classifier.explain("text 8")
    assert not found.opinions and "experts alone" not in str(found)


def test_what_is_left_of_a_text_without_a_part_and_long_texts_have_few_parts():
    left = [fields for _, fields in explanation.split({"a": " one  two\nthree", "b": "x"})]
    assert [fields["a"] for fields in left] == [" two\nthree", " one  three", " one  two", " one  two\nthree"]
    assert [fields["b"] for fields in left] == ["x", "x", "x", ""]
    fields = {"a": " ".join(f"w{number}" for number in range(9001)), "b": "more"}
    parts = [text for text, _ in explanation.split(fields)]
    assert len(parts) <= explanation.MAX_PARTS + 1 and " ".join(parts) == f"{fields['a']} more"


def test_lines_are_short_and_printable():
    text = "<script>bad</script> ok\x1b[31m \u202enot"
    parts = [explanation.Part(*pair) for pair in zip(text.split(), (0.5, 0.0, -0.25), strict=True)]
    reason = explanation.Reason("<u>", 0.1, 0.5, 0.25)
    near = explanation.Neighbour(7, "<b>", {"text": "x <i> y\n" * 5000}, 0.125, (reason,))
    shares = {"&": 0.75, "<b>": 0.25, "c": 0.0}
    found = str(explanation.Explanation({"text": text}, "&", shares, tuple(parts), (near,) * 12, "KL, nats"))
    lines = found.splitlines()
    assert max(map(len, lines)) < 250 and "\x1b" not in found and "\u202e" not in found
    assert lines[2] == "  words that change the probability of &: '<script>bad</script>' +0.50, '\\u202enot' -0.25"
    assert lines[5].startswith("  anchor 7, label <b>, distance 0.1250: x <i> y")
    assert lines[6] == "    '<u>' 0.1000 (50 %, 25 %)" and len(lines) == 5 + 2 * 3
