"""Methods by name: those that are refused, in one line with the choices, and those that "all" excludes."""

import dataclasses
import importlib.util
import pathlib

import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.datastore.search import KNNOptions
from knnprompt_jax.methods import all_methods, calibrations, method
from tests.methods import whole_texts
from tests.methods.synthetic import tokenize_words

CALIBRATIONS = {declared.name for declared in calibrations.METHODS}
COMPARE_LABEL_WORDS = CALIBRATIONS | {"icl", "knn_kl_labels", "icl_ensemble", "prompt_compose_bm25"}
BY_NAME = {name for name, declared in all_methods.METHODS.items() if declared.excluded_because}
DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "methods.md"


def with_tokens(problem, a, b, c, **changes):
    """Return the problem with these tokens for its label words, "a", "b" and "c" after a space."""
    words = {" a": a, " b": b, " c": c}
    return dataclasses.replace(problem, tokenize=tokenize_words(words), **changes)


def select(names, problem, **changes):
    """Select methods with default options, except for these groups."""
    return all_methods.select(names, problem, all_methods.MethodOptions(**changes))


def names_of(selected):
    return [declared.name for declared in selected]


def test_all_are_the_methods_that_need_not_be_named(problem):
    selected, reasons = select(["all"], with_tokens(problem, [1], [2], [3]))
    assert names_of(selected) == [name for name in all_methods.METHODS if name not in BY_NAME]
    assert set(reasons) == BY_NAME


def test_a_variant_takes_the_options_of_its_method_and_keeps_its_own_values():
    settings = all_methods.MethodOptions(knn=KNNOptions(k=7, distance="reverse_kl"))
    assert all_methods.get("knn_l2").options(settings) == KNNOptions(k=7, distance="l2")
    assert all_methods.get("knn").options(settings) == settings.knn


def test_names_keep_their_order_and_unknown_ones_are_refused_with_the_choices(problem):
    assert names_of(select(["knn", "icl", "knn"], problem)[0]) == ["knn", "icl"]
    with pytest.raises(errors.UserError, match="unknown method 'knnn': choose from icl, .*encoder_knn"):
        select(["icl", "knnn"], problem)


def test_calibrations_refuse_label_words_of_several_tokens(problem):
    several = with_tokens(problem, [4, 1], [2], [3])
    with pytest.raises(errors.UserError, match="'linc' does not apply: the label word 'a' has 2 tokens"):
        select(["icl", "linc"], several)
    assert set(select(["all"], several)[1]) == CALIBRATIONS | BY_NAME
    assert names_of(select(["linc"], dataclasses.replace(several, label_token="first"))[0]) == ["linc"]


@pytest.mark.parametrize("label_token", ["last", "first"])
def test_label_words_that_share_the_token_that_is_read_are_refused(problem, label_token):
    """The other token may be shared."""
    order = 1 if label_token == "last" else -1
    different = [[5, token][::order] for token in (1, 2, 3)]
    select(["icl"], with_tokens(problem, *different, label_token=label_token))
    shared = with_tokens(problem, *(tokens[::-1] for tokens in different), label_token=label_token)
    selected, reasons = select(["all"], shared)
    assert set(reasons) == COMPARE_LABEL_WORDS | BY_NAME
    assert "'a' and 'b'" in reasons["icl"] and "the same token" in reasons["icl"]
    assert {"knn", "knn_l2", "hidden_centroids"} < set(names_of(selected))


def test_whole_labels_must_differ_in_some_token(problem):
    """Labels that end alike are different; in-context learning refuses them because it reads only the last token."""

    def with_words(*words):
        return dataclasses.replace(problem, task=dataclasses.replace(problem.task, label_words=words))

    select(["icl_multi_token"], with_words("ax", "bx", "cx"))
    folded = dataclasses.replace(
        with_words("Yes", "no", "yes"),
        tokenize=lambda texts: [[ord(letter) for letter in text.lower()] for text in texts],
    )
    with pytest.raises(errors.UserError, match="does not apply: .* 'Yes' and 'yes' have the same tokens"):
        select(["icl_multi_token"], folded)


def test_methods_that_use_anchors_are_excluded_without_anchors(problem):
    empty = dataclasses.replace(problem, split=dataclasses.replace(problem.split, anchors=()))
    selected, reasons = select(["all"], empty)
    assert "no anchors" in reasons["knn"] and {"icl", "prompt_compose_bm25"} <= set(names_of(selected))
    assert not any(method.ANCHORS in declared.needs for declared in selected)


@pytest.mark.parametrize(("name", "demo_shots", "most"), [("icl_ensemble", 2, 1), ("prompt_compose_bm25", 0, 3)])
def test_too_few_demonstrations_are_refused(name, demo_shots, most):
    message = f"'{name}' does not apply: demo_shots={demo_shots}: .* from 1 to {most}"
    with pytest.raises(errors.UserError, match=message):
        select([name], whole_texts.trec(demo_shots, 3 - demo_shots))


def test_prototypical_calibration_needs_an_anchor_per_cluster(synthetic):
    with pytest.raises(errors.UserError, match="Calibration has 4 anchors and needs 5"):
        select(["proca"], synthetic.context([0] * 4).problem)


def test_a_missing_encoder_or_library_is_refused_before_weights_load(problem, monkeypatch):
    for name in ("encoder_probe", "encoder_knn", "auto"):
        changes = {name: all_methods.MethodOptions.groups()[name](encoder="./no")}
        with pytest.raises(errors.UserError, match=f"'{name}' does not apply: model './no': no such"):
            select([name], problem, **changes)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "rank_bm25" in select(["all"], problem)[1]["prompt_compose_bm25"]


def test_every_method_is_documented():
    """Its row has four cells: name, title, what it does and the source."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| `")]
    described = {cells[0].strip("`"): cells[1:] for cells in rows if len(cells) == 4}
    assert {name: cells[0] for name, cells in described.items()} == {
        name: declared.title for name, declared in all_methods.METHODS.items()
    }
    assert {name for name, cells in described.items() if cells[1].startswith("**by name**")} == BY_NAME
