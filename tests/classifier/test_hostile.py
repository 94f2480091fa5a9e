"""Texts, labels and tasks that nobody hopes for: the right result, or one clear line."""

import numpy as np
import pytest

import knnprompt_jax as kp

ONE = {"k": 1, "distance": "forward"}
TASK = kp.Task("hostile", ("text",), "{text}\nIt is", ("no", "yes"), ("bad", "good"))
TEXTS = {
    "nul": "a\x00b\x00",
    "right to left": "\u05e9\u05dc\u05d5\u05dd \u202e\u0645\u0631\u062d\u0628\u0627",
    "emoji": "\U0001f469\u200d\U0001f680 \ufe0f",
    "html": "<script>alert('&')</script>",
    "braces": "{text} {0} {{}} %s \\n",
    "newlines": "\n\n a \r\n\u2028 b \n\n",
    "ten kilobytes": "many words and 1 more, " * 2**9,
    "special token": "<|endoftext|> </s>",
}


@pytest.fixture(scope="module")
def classifier(model):
    texts = list(TEXTS.values())
    return kp.KNNPrompting(model, TASK, **ONE, demo_shots=0).fit(texts, ["no", "yes"] * (len(texts) // 2))


def test_any_text_is_its_own_nearest_anchor(classifier):
    distances, ids = classifier.kneighbors(list(TEXTS.values()))
    np.testing.assert_array_equal(ids[:, 0], np.arange(len(TEXTS)))
    np.testing.assert_allclose(distances, 0, atol=1e-5)


@pytest.mark.parametrize("name", TEXTS)
def test_any_text_is_explained_and_survives_saving(classifier, tmp_path, name):
    told = classifier.explain(TEXTS[name])
    assert told.neighbours[0].fields == {"text": TEXTS[name]}
    assert "<script>" not in told._repr_html_() and len(str(told)) < 2000
    if name in ("nul", "newlines"):  # The same file holds them all.
        classifier.save(tmp_path / "saved")
        assert kp.load(tmp_path / "saved", classifier.model).anchors_ == classifier.anchors_


def test_texts_of_a_megabyte_are_cut_from_the_left_or_refused(model):
    long = TEXTS["ten kilobytes"] * 100
    cut = kp.KNNPrompting(model, TASK, **ONE, demo_shots=1).fit(
        ["a", "b", "c", "d", long], ["no", "yes", "no", "yes", "no"]
    )
    end = cut.kneighbors(["another start, " + long])
    assert end[1][0, 0] == 4 and end[0][0, 0] == pytest.approx(0, abs=1e-5)
    with pytest.raises(kp.UserError, match=r"row 1: its prompt has \d+ tokens, the context 1024"):
        kp.KNNPrompting(model, TASK, **ONE, demo_shots=0, truncation="error").fit(["a", long], ["no", "yes"])


def test_ten_thousand_classes(model):
    labels = [str(number) for number in range(10_000)]
    texts = [f"number {7 * number} of many" for number in range(13)]
    task = kp.Task("many", ("text",), "{text}:", tuple(labels), tuple(f"word {label}" for label in labels))
    classifier = kp.KNNPrompting(model, task, **ONE).fit(texts, range(9_987, 10_000))
    assert not classifier.demonstrations_
    np.testing.assert_array_equal(classifier.predict(texts), range(9_987, 10_000))
    assert classifier.predict_proba(texts[:2]).shape == (2, 10_000)
