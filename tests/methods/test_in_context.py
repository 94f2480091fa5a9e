"""In-context learning against its definition: the label word that the next-token distribution favours."""

import numpy as np

from knnprompt_jax.methods import in_context


def test_the_most_probable_label_word_decides(decoded):
    method = in_context.InContextLearning(decoded.head, decoded.label_ids)
    words_QC = np.exp(decoded.logp_QV)[:, decoded.label_ids]
    want_Q = words_QC.argmax(-1)
    assert len(set(want_Q)) > 1, "predictions must vary for this to test anything"
    np.testing.assert_array_equal(method.predict(decoded.queries), want_Q)
    np.testing.assert_allclose(
        method.predict_proba(decoded.queries), words_QC / words_QC.sum(-1, keepdims=True), atol=1e-5
    )
