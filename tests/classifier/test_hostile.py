"""Texts, labels and tasks that nobody hopes for: the right result, or one clear line."""

import numpy as np
import pandas as pd
import pytest

import knnprompt_jax as kp

ONE = {"k": 1, "distance": "kl"}
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


def test_any_text_is_its_own_nearest_anchor_is_explained_and_survives_saving(classifier, tmp_path):
    distances, ids = classifier.kneighbors(list(TEXTS.values()))
    np.testing.assert_array_equal(ids[:, 0], np.arange(len(TEXTS)))
    np.testing.assert_allclose(distances, 0, atol=1e-5)
    for text in TEXTS.values():
        found = classifier.explain(text, num_tokens=5)
        assert found.neighbours[0].fields == {"text": text} and len(str(found)) < 2000
    classifier.save(tmp_path / "saved")
    assert kp.load(tmp_path / "saved", classifier.model).anchors_ == classifier.anchors_


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ("ab", "a str"),
        (pd.DataFrame({"y": ["a", "b"]}), "a Data"),
        (3, "a i"),
        (["a"] * 2, "every row has the label 'a'"),
    ],
)
def test_labels_that_are_no_list_of_two_classes_are_refused(classifier, labels, kind):
    for estimator in (kp.KNNPrompting, kp.AutoClassifier):
        with pytest.raises(kp.UserError, match=f"^(y is )?{kind}"):
            estimator(classifier.model).fit(["one text", "two text"], labels)


@pytest.mark.parametrize(("texts", "k"), [(["x"], 2.5), (None, 0), (None, 55)])
def test_a_number_of_neighbours_that_does_not_exist_is_refused(fitted, texts, k):
    with pytest.raises(kp.UserError, match="whole number|at least 1|choose from 1 to 54, the number of other anchors"):
        fitted.kneighbors(texts, k)
