"""Passes of methods' own: how long prompts are treated, progress shown, and costs estimated beforehand."""

import contextlib
import dataclasses

import numpy as np
import pytest

from knnprompt_jax import errors, progress
from knnprompt_jax.methods import method, registry
from knnprompt_jax.prompts import layout
from knnprompt_jax.tasks import catalogue
from tests.methods import whole_texts

TREC = catalogue.get("trec")
OPTIONS = {"demonstration_upper_bound": {"num_prompts": 2}, "i2cl": {"rows": 2, "epochs": 2}}
OWN = ["icl_multi_token", "icl_ensemble", "prompt_compose_bm25", "demonstration_upper_bound", "hidden_centroids_layer"]


def make_problem(demo_shots, anchor_shots):
    return whole_texts.make_problem(TREC, demo_shots, anchor_shots, whole_texts.queries(TREC, 3))


def lay_out(problem):
    return layout.lay_out(TREC, problem.split.demonstrations, problem.evaluation, problem.tokenize, whole_texts.CONTEXT)


@pytest.mark.parametrize("name", ["icl", *OWN])
def test_one_truncation_for_all_passes(name, predict):
    """Prompts too long are refused where they are to be, in the shared pass or in the method's own."""
    problem, given = make_problem(4, 5), OPTIONS.get(name, {})
    assert predict(name, problem, whole_texts.model(), **given).classes_Q.shape == (3,)
    with pytest.raises(errors.UserError, match=f"the context {whole_texts.CONTEXT}"):
        predict(name, dataclasses.replace(problem, truncation="error"), whole_texts.model(), **given)


@pytest.mark.parametrize("name", [*OWN, "noisy_channel", "icl_many_shot"])
def test_progress_is_shown(name, predict, monkeypatch):
    shown = []

    @contextlib.contextmanager
    def bar(total, title):
        done = []
        yield lambda prompts, tokens: done.append(prompts)
        shown.append((title, total, sum(done)))

    monkeypatch.setattr(progress, "bar", bar)
    predict(name, make_problem(1, 1), whole_texts.model(), **OPTIONS.get(name, {}))
    ((title, total, done),) = shown
    assert title.startswith("seed 1, ") and total == done > 0


@pytest.mark.parametrize("name", [*OWN, "noisy_channel", "noisy_channel_ensemble", "icl_many_shot", "i2cl"])
def test_the_cost_is_known_beforehand(name):
    """Its prompts exactly; its tokens within a factor: prefixes and common beginnings are read once."""
    problem, model, declared = make_problem(1, 2), whole_texts.model(), registry.get(name)
    settings, states = declared.settings(**OPTIONS.get(name, {})), model.states(lay_out(problem))[:]
    reader = method.Reader(lambda texts: np.array([len(whole_texts.tokens(text)) for text in texts]), model.context)
    before = dataclasses.replace(model.statistics)
    prediction = declared.run(method.Context(problem, model, {method.queries: states}), settings)
    read = model.statistics.tokens - before.tokens + prediction.tokens
    cost = declared.cost(problem, reader, settings)
    assert cost.prompts == prediction.prompts and 0.8 < cost.tokens / read < 4


def test_the_cost_of_training():
    problem, declared = make_problem(0, 3), registry.get("fine_tuning")
    reader = method.Reader(lambda texts: np.full(len(texts), 7), 1024)
    assert declared.cost(problem, reader, declared.settings(steps=5, batch=4)) == (3, 3 * 7 + 3 * 5 * 4 * 7)
