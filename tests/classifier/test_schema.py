"""JSON of dataclasses: a choice returns as it was, and what does not match the types is refused."""

import dataclasses
import json
from collections.abc import Mapping

import pytest

from knnprompt_jax import errors
from knnprompt_jax.classifier import schema
from knnprompt_jax.classifier.classifier_options import AutoOptions
from knnprompt_jax.experts.pool import Choice, Estimate, Member, Outcome

MEMBERS = (Member("probe", 2, 0.3, 4.0, 1.0, 0.7, 0.9), Member("words", None, 1.0, 6.0, 0.2, 0.3, 0.8))
CHOICE = Choice(
    MEMBERS,
    ("labels left out: why",),
    Estimate(0.9, 0.8, 0.95, 0.9, 0.3),
    2,
    outcomes=(Outcome(0.7, True), Outcome(0.5, False)),
)


@dataclasses.dataclass(frozen=True)
class Everything:
    number: float
    names: Mapping[str, int]
    label: str | int | bool
    pairs: tuple[str, ...] | None


def test_a_choice_returns_as_it_was():
    assert schema.decode(Choice, schema.parse(schema.dumps(CHOICE))) == CHOICE


def test_an_option_is_checked():
    content = json.loads(schema.dumps(AutoOptions()))
    content["label_token"] = "middle"
    with pytest.raises(errors.UserError, match="label_token='middle'"):
        schema.decode(AutoOptions, content)


@pytest.mark.parametrize(("label", "pairs"), [("x", None), (3, ["a", "b"]), (True, [])])
def test_values_of_each_type(label, pairs):
    found = schema.decode(Everything, {"number": 3, "names": {"a": 1}, "label": label, "pairs": pairs})
    assert found == Everything(3.0, {"a": 1}, label, None if pairs is None else tuple(pairs))
    assert type(found.label) is type(label) and type(found.number) is float


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": "3"}, "number: float expected, not str"),
        ({"number": True}, "number: float expected, not bool"),
        ({"number": 1e999}, "number is not finite"),
        ({"names": {"a": "b"}}, "names.a: int expected, not str"),
        ({"names": [1]}, "names: dict expected, not list"),
        ({"label": None}, "label: str expected, not NoneType"),
        ({"pairs": ["a", 3]}, r"pairs\[1\]: str expected, not int"),
        ({"more": 1}, "unknown member 'more'"),
    ],
)
def test_other_values_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        schema.decode(Everything, {"number": 3, "names": {}, "label": 1, "pairs": None} | change)


def test_a_missing_member_is_refused():
    with pytest.raises(ValueError, match="missing member 'label'"):
        schema.decode(Everything, {"number": 3, "names": {}, "pairs": None})
