"""JSON of dataclasses: a choice returns as it was, and what does not match the types is refused."""

import dataclasses
import json
from collections.abc import Mapping

import pytest

from knnprompt_jax import errors
from knnprompt_jax.classifier import schema
from knnprompt_jax.rules import Choice, Rule
from knnprompt_jax.rules.choice import Candidate, Score

RULE = Rule("blend", 2, 3, "l2", "distance", 0.5, 0.1, 7, 1.5, 2.5)
CHOICE = Choice(RULE, (Candidate(RULE, Score(0.9, 0.1, 0.8, 0.3)),), Score(0.8, 0.2, 0.7, 0.4), "accuracy", 13)


@dataclasses.dataclass(frozen=True)
class Everything:
    number: float
    names: Mapping[str, int]
    label: str | int | bool
    pairs: tuple[str, ...] | None


def test_a_choice_returns_as_it_was():
    assert schema.decode(Choice, schema.parse(schema.dumps(CHOICE))) == CHOICE


def test_an_option_is_checked():
    content = json.loads(schema.dumps(CHOICE))
    content["rule"]["distance"] = "sideways"
    with pytest.raises(errors.UserError, match="distance='sideways'"):
        schema.decode(Choice, content)


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
