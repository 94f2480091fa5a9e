"""Methods by name: what is refused, in one line with the choices, and what "all" leaves out."""

import dataclasses
import importlib.util
import pathlib
import re

import pytest

from knnprompt_jax import errors, options
from knnprompt_jax.methods import calibrations, method, registry
from knnprompt_jax.settings import methods
from tests.methods.conftest import tokenize_words

CALIBRATIONS = {one.name for one in calibrations.METHODS}
READ_WORDS = CALIBRATIONS | {"icl", "knn_kl_labels", "icl_ensemble", "prompt_compose_bm25"}
BY_NAME = {name for name, one in registry.METHODS.items() if one.entry.excluded_because}


def with_tokens(problem, a, b, c, **changes):
    """The problem with these tokens for its label words, "a", "b" and "c" after a blank."""
    words = {" a": a, " b": b, " c": c}
    return dataclasses.replace(problem, tokenize=tokenize_words(words), **changes)


def select(names, problem, **options):
    """Select methods with the default options, apart from these groups."""
    return registry.select(names, problem, methods.MethodOptions(**options))


def test_every_method_applies_where_label_words_are_tokens(problem):
    chosen, left_out = select(["all"], with_tokens(problem, [1], [2], [3]))
    assert [one.name for one in chosen] == [name for name in registry.METHODS if name not in BY_NAME]
    assert set(left_out) == BY_NAME and all("name the method" in reason for reason in left_out.values())
    chosen, _ = select(["knn", "icl", "knn"], problem)
    assert [one.name for one in chosen] == ["knn", "icl"], "in the order given, each once"


@pytest.mark.parametrize("names", [["icl", "knnn"], ["all", "icl"], []])
def test_unknown_method(problem, names):
    with pytest.raises(errors.UserError, match="method.*choose from icl, .*encoder_knn"):
        select(names, problem)


def test_label_words_of_several_tokens(problem):
    several = with_tokens(problem, [4, 1], [2], [3])
    with pytest.raises(errors.UserError, match="'linc' does not apply: the label word 'a' .* has 2 tokens") as error:
        select(["icl", "linc"], several)
    message = str(error.value)
    assert "--label_token=first" in message and message.endswith("encoder_probe, encoder_knn")
    assert "methods that do: icl, icl_multi_token, knn" in message and "proca" not in message
    _, left_out = select(["all"], several)
    assert set(left_out) == CALIBRATIONS | BY_NAME
    first = dataclasses.replace(several, label_token="first")
    assert select(["linc"], first)[0][0].name == "linc" and first.label_ids == [4, 2, 3]


@pytest.mark.parametrize("label_token", ["last", "first"])
def test_label_words_that_share_a_token(problem, label_token):
    """The token by which classes are read tells them apart, where label words are read; the other may be shared."""
    order = 1 if label_token == "last" else -1
    select(["icl"], with_tokens(problem, *([5, token][::order] for token in (1, 2, 3)), label_token=label_token))
    shared = with_tokens(problem, *([token, 5][::order] for token in (1, 2, 3)), label_token=label_token)
    with pytest.raises(errors.UserError, match="'icl' does not apply: .*'a' and 'b' .* the same token"):
        select(["icl"], shared)
    chosen, left_out = select(["all"], shared)
    assert set(left_out) == READ_WORDS | BY_NAME and {"knn", "knn_l2", "hidden_centroids"} < {
        one.name for one in chosen
    }


def test_no_anchors(problem):
    empty = dataclasses.replace(problem, split=dataclasses.replace(problem.split, anchors=()))
    for name in ("knn", "linear_probe"):
        with pytest.raises(errors.UserError, match=f"'{name}' does not apply: there are no anchors"):
            select([name], empty)
    chosen, _ = select(["all"], empty)
    assert {"icl", "prompt_compose_bm25"} <= {one.name for one in chosen}
    assert not any(method.anchors in one.needs for one in chosen)


@pytest.mark.parametrize("name", ["encoder_probe", "encoder_knn"])
def test_a_missing_encoder_is_refused_before_weights_load(problem, name):
    options = {name: methods.OPTIONS[name](encoder="./no")}
    with pytest.raises(errors.UserError, match=f"'{name}' does not apply: no such folder: ./no"):
        select([name], problem, **options)


def test_every_method_and_option_is_documented():
    text = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| `")]
    described = {cells[0].strip("`"): cells[1:] for cells in rows if len(cells) == 5}
    assert {name: cells[0] for name, cells in described.items()} == {
        name: declared.title for name, declared in registry.METHODS.items()
    }
    assert {name for name, cells in described.items() if cells[1].startswith("**by name**")} == BY_NAME
    documented = {name for cells in rows if len(cells) == 4 for name in re.findall(r"`(\w+)`", cells[0])}
    assert documented == {name.split(".")[1] for name, _, _ in options.declarations(methods.MethodOptions)}


def test_a_missing_library_excludes_a_method_before_the_model_reads(problem, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(errors.UserError, match="'prompt_compose_bm25' does not apply: it needs rank_bm25: pip install"):
        select(["prompt_compose_bm25"], problem)
    assert "rank_bm25" in select(["all"], problem)[1]["prompt_compose_bm25"]
