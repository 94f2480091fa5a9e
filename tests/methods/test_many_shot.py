"""Many shots: how many fit by hand, and what in-context learning makes of them, one whole text at a time."""

import numpy as np
import pytest
from scipy import special

from knnprompt_jax.methods import many_shot, method
from knnprompt_jax.prompts import layout
from knnprompt_jax.tasks import catalogue
from tests.methods import whole_texts

TREC = catalogue.get("trec")


@pytest.fixture
def problem():
    return whole_texts.make_problem(TREC, 1, 2, whole_texts.queries(TREC, 3))


@pytest.mark.parametrize(
    ("context", "most", "shown"),
    # 18 rows of 10 tokens and one for the blank line, after 1 special token and before a query of 10.
    [(11 + 4 * 11, 0, 4), (11 + 5 * 11 - 1, 0, 4), (1000, 0, 18), (1000, 7, 7), (12, 0, 0), (5, 0, 0)],
)
def test_as_many_as_leave_room(problem, monkeypatch, context, most, shown):
    monkeypatch.setattr(method.Problem, "num_special", 1)
    reader = method.Reader(lambda texts: np.full(len(texts), 10), context)
    rows = many_shot.demonstrations(problem, reader, many_shot.Settings(most=most))
    # Where a query is too long even alone, the whole context is for demonstrations; here that holds none.
    assert len(rows) == shown
    every = many_shot.demonstrations(problem, method.Reader(reader.lengths, 1000), many_shot.Settings())
    assert rows == every[:shown] and sorted(row.row for row in every) == sorted(row.row for row in problem.train_rows)
    assert [row.row for row in every] != [row.row for row in problem.train_rows]


def test_predicts_as_whole_texts_do(problem, predict):
    model = whole_texts.model()
    result = predict("icl_many_shot", problem, model)
    shown = many_shot.demonstrations(problem, method.Reader(problem.lengths, model.context), many_shot.Settings())
    assert 0 < len(shown) < 18 and result.note == f"{len(shown)} demonstrations"
    text = layout.demonstration_text(TREC, shown)
    prompts = [whole_texts.tokens(text + TREC.render(query)) for query in problem.evaluation]
    one_more = layout.demonstration_text(TREC, [next(row for row in problem.train_rows if row not in shown)])
    assert max(map(len, prompts)) <= model.context < max(map(len, prompts)) + 2 * len(whole_texts.tokens(one_more)) + 20
    label_ids = layout.label_ids(TREC, problem.tokenize)
    want_QC = special.softmax([[whole_texts.log_p(own, [label])[0] for label in label_ids] for own in prompts], axis=-1)
    np.testing.assert_allclose(result.probabilities_QC, want_QC, atol=3e-5)
    assert (result.prompts, result.truncated) == (3, 0)
