"""Promises on measured rows, from numbers worked out by hand."""

import numpy as np

from knnprompt_jax.report import drawing, promises
from knnprompt_jax.report.measures import Measures


def test_promises_and_what_held():
    """Of 97 held-out rows, 60 of probability 0.9 are right, and 37 of 0.6 are wrong in 10 cases."""
    p_N = np.repeat([0.9, 0.6], [60, 37])
    right_N = np.arange(97) < 87
    confidence_Q = np.array([0.95, 0.9, 0.9, 0.89, 0.6, 0.5, 0.5])
    y_Q = np.array([0, 0, 1, 1, 0, 1, 0])
    measured = Measures(("a", "b"), y_Q, np.zeros(7, int), np.stack([confidence_Q, 1 - confidence_Q], -1))
    by_rate = {promise.max_error: promise for promise in promises.measure(p_N, right_N, measured)}
    assert by_rate[0.05] == promises.Promise(0.05, 0.9, rows=3, wrong=1, coverage=3 / 7)
    assert by_rate[0.2] == promises.Promise(0.2, 0.6, rows=5, wrong=2, coverage=5 / 7)
    assert by_rate[0.02].probability is None and 97 < by_rate[0.02].rows_needed < 1024
    first, second, *_, last = promises.list_promises(list(by_rate.values())).rows
    assert first == ("1\u00a0%", "–", "–", "none: needs at least 390 train rows")
    assert second[3] == f"none: needs at least {by_rate[0.02].rows_needed} train rows"
    (hopeless,) = promises.list_promises([promises.Promise(0.02)]).rows
    assert hopeless[3] == "none: cannot be certified, even from more rows like these"
    (unreached,) = promises.list_promises([promises.Promise(0.02, 0.99)]).rows
    assert unreached == ("2\u00a0%", "0.9900", "0.0\u00a0%", "none")
    assert last == ("20\u00a0%", "0.6000", "71.4\u00a0%", "40.0\u00a0% (2 of 5)")
    with drawing.style():
        figure = promises.draw(measured, list(by_rate.values()))
    assert ">5 %<" in figure.panels[0] and ">1 %<" not in figure.panels[0]
