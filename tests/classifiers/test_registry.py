"""Methods by name: what is refused, in one line with the choices, and what "all" leaves out."""

import dataclasses

import pytest

from knnprompt_jax import errors
from knnprompt_jax.classifiers import method, registry

CALIBRATIONS = {
    "contextual_calibration",
    "contextual_calibration_trainset",
    "domain_context_calibration",
    "batch_calibration",
    "proca",
    "linc",
}
READ_WORDS = CALIBRATIONS | {"icl", "knn_partial", "knn_partial_raw", "icl_ensemble", "prompt_compose_bm25"}
BY_NAME = {name for name, one in registry.METHODS.items() if one.by_name}


def with_words(problem, *words, **changes):
    task = dataclasses.replace(problem.task, label_words=words)
    return dataclasses.replace(problem, task=task, **changes)


def one_line(error):
    assert "\n" not in str(error.value)
    return str(error.value)


def test_every_method_applies_where_label_words_are_tokens(problem):
    words = {"a": [1], "b": [2], "c": [3]}
    fine = dataclasses.replace(
        problem, tokenize=lambda texts: [words.get(text.strip(), [9] * len(text)) for text in texts]
    )
    chosen, left_out = registry.select(["all"], fine)
    assert [one.name for one in chosen] == [name for name in registry.METHODS if name not in BY_NAME]
    assert set(left_out) == BY_NAME and all("name the method" in reason for reason in left_out.values())


def test_names_are_kept_in_order_and_once(problem):
    chosen, _ = registry.select(["knn", "icl", "knn"], problem)
    assert [one.name for one in chosen] == ["knn", "icl"]


@pytest.mark.parametrize("names", [["icl", "knnn"], ["all", "icl"], []])
def test_unknown_method(problem, names):
    with pytest.raises(errors.UserError, match="method.*choose from icl, knn, .*linear_probe_log_p, or all") as error:
        registry.select(names, problem)
    one_line(error)


def test_label_words_of_several_tokens(problem):
    """A blank and a letter are two tokens here."""
    with pytest.raises(errors.UserError, match="'linc' does not apply: the label word 'a' .* has 2 tokens") as error:
        registry.select(["icl", "linc"], problem)
    message = one_line(error)
    assert "label_tokens='last'" in message and message.endswith("linear_probe, linear_probe_log_p")
    assert "methods that do: icl, knn" in message and "proca" not in message
    chosen, left_out = registry.select(["all"], problem)
    assert set(left_out) == CALIBRATIONS | BY_NAME and len(chosen) + len(left_out) == len(registry.METHODS)
    assert registry.select(["linc"], dataclasses.replace(problem, label_tokens="last"))[0][0].name == "linc"


def test_label_words_that_share_a_token(problem):
    """The first token may be shared; the last, by which a class is read, only where label words are not read."""
    registry.select(["icl"], with_words(problem, "xa", "xb", "xc"))
    shared = with_words(problem, "ax", "bx", "cx", label_tokens="last")
    with pytest.raises(errors.UserError, match="'icl' does not apply: .*'ax' and 'bx' end in the same token"):
        registry.select(["icl"], shared)
    chosen, left_out = registry.select(["all"], shared)
    assert set(left_out) == READ_WORDS | BY_NAME and {"knn", "knn_l2", "hidden_centroids"} < {
        one.name for one in chosen
    }


def test_no_anchors(problem):
    empty = dataclasses.replace(problem, split=dataclasses.replace(problem.split, anchors=()))
    with pytest.raises(errors.UserError, match="'knn' does not apply: there are no anchors"):
        registry.select(["knn"], empty)
    chosen, _ = registry.select(["all"], empty)
    assert {"icl", "prompt_compose_bm25"} <= {one.name for one in chosen}
    assert not any(method.anchors in one.needs for one in chosen)


def test_options():
    assert registry.with_options(registry.get("knn_released"), {"k": 5}) == {
        "k": 5,
        "direction": "released",
        "representation": "distribution",
        "tie_break": "lowest",
        "centroid": "none",
    }
    with pytest.raises(errors.UserError, match="'linc' has no option 'k': choose from epochs, learning_rate, rows"):
        registry.with_options(registry.get("linc"), {"k": 5})
    with pytest.raises(errors.UserError, match="'icl' has no option 'k': choose from none"):
        registry.with_options(registry.get("icl"), {"k": 5})


def test_label_tokens_choices(problem):
    with pytest.raises(errors.UserError, match="label_tokens='all': choose from one, last"):
        dataclasses.replace(problem, label_tokens="all")
    assert method.LABEL_TOKENS == ("one", "last")
