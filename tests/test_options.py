"""Options: what a declaration checks, and what configs and lists are made of it."""

import dataclasses
import json

import numpy as np
import pytest

from knnprompt_jax import errors, options


@dataclasses.dataclass(frozen=True)
class Inner(options.Options):
    memory_mb: float = options.option(512.0, "Memory.", least=1)


@dataclasses.dataclass(frozen=True)
class Base(options.Options):
    store: Inner = options.group(Inner)
    output: str = options.option("results", "Folder.", needed=True)


@dataclasses.dataclass(frozen=True)
class Settings(Base):
    k: int = options.option(3, "Neighbours.", least=1)
    rate: float = options.option(0.5, "Of dropout.", least=0, most=1)
    seeds: tuple[int, ...] = options.option((1, 2), "Of draws.", least=-1, needed=True)
    kinds: tuple[str, ...] = options.option(("dense",), "Of stores.", choices={"dense": 1, "factored": 2})
    distance: str = options.option("forward", "By which anchors are near.", choices=("forward", "released"))
    remat: bool = options.option(False, "Recompute.")


@pytest.mark.parametrize(
    "values",
    [
        {"k": 7, "rate": 1, "seeds": (-1, 5), "kinds": (), "distance": "released", "remat": True, "output": "x"},
        {"k": np.int64(7), "rate": np.float32(0.25), "seeds": [np.int32(5)], "store": Inner(np.float64(1))},
    ],
)
def test_values_become_those_of_python(values):
    checked = Settings(**values).to_dict()
    assert {name: checked[name] for name in values if name != "store"} == {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items() if name != "store"
    }
    assert type(checked["k"]) is int and type(checked["rate"]) is type(checked["store"]["memory_mb"]) is float
    assert json.loads(json.dumps(checked))["seeds"] == list(checked["seeds"])


MISTAKES = [
    ({"k": "abc"}, "k='abc': it must be a whole number"),
    ({"k": 3.0}, "k=3.0: it must be a whole number"),
    ({"k": True}, "k=True: it must be a whole number"),
    ({"k": None}, "k=None: it must be a whole number"),
    ({"k": 0}, "k=0: at least 1 is needed"),
    ({"rate": float("nan")}, "rate=nan: it must be a number, and finite"),
    ({"rate": float("-inf")}, "rate=-inf: it must be a number, and finite"),
    ({"rate": "0.5"}, "rate='0.5': it must be a number, and finite"),
    ({"rate": False}, "rate=False: it must be a number, and finite"),
    ({"rate": 1.5}, "rate=1.5: at most 1 is possible"),
    ({"rate": 10**400}, "rate=1000000000000000000000000000000000000000…00000000000000000000: it must be a number, and"),
    ({"k": 2**31}, "k=2147483648: at most 2147483647 is possible"),
    ({"k": 10**5000}, "k=a number of thousands of digits: at most 2147483647 is possible"),
    ({"seeds": 5}, "seeds=5: choose several, as in seeds=(1, 2)"),
    ({"seeds": (1, 2.5)}, "seeds=(1, 2.5): each must be a whole number"),
    ({"seeds": ((1, 2),)}, "seeds=((1, 2),): each must be a whole number"),
    ({"seeds": (4, -2)}, "seeds=(4, -2): at least -1 is needed"),
    ({"seeds": ()}, "seeds=(): it is needed: Of draws."),
    ({"kinds": "dense"}, "kinds='dense': choose several"),
    ({"kinds": ("dense", 3)}, "kinds=('dense', 3): choose from dense, factored"),
    ({"distance": "cosine"}, "distance='cosine': choose from forward, released"),
    ({"distance": 1}, "distance=1: choose from forward, released"),
    ({"remat": 1}, "remat=1: it must be True or False"),
    ({"output": 7}, "output=7: it must be a text"),
    ({"output": ""}, "output='': it is needed: Folder."),
    ({"output": "a\0b"}, "output='a\\x00b': a text in UTF-8 without NUL characters is needed"),
    ({"output": "caf\udce9"}, "output='caf\\udce9': a text in UTF-8 without NUL characters is needed"),
]


@pytest.mark.parametrize(("values", "message"), MISTAKES)
def test_mistakes(values, message):
    for make in (Settings, lambda **values: options.from_config(Settings, values)):
        with pytest.raises(errors.UserError) as caught:
            make(**values)
        assert str(caught.value).startswith(message)


@dataclasses.dataclass(frozen=True)
class Shots(options.Options):
    shots: int = options.option(3, "Rows.", least=1, words={"all": 0})


@pytest.mark.parametrize(("given", "shots"), [("all", 0), (5, 5), ("7", 7)])
def test_a_word_stands_for_a_value(given, shots):
    assert Shots(given).shots == options.from_config(Shots, {"shots": given}).shots == shots


def test_what_a_word_stands_for_cannot_be_said_without_it():
    assert dataclasses.replace(Shots("all")).shots == 0, "options are made of options"
    with pytest.raises(errors.UserError, match="shots=0: at least 1 is needed"):
        options.from_config(Shots, {"shots": 0})


@pytest.mark.parametrize(
    ("given", "message"), [("any", "shots='any': it must be a whole number or all"), (-1, "shots=-1: at least 1")]
)
def test_other_words_and_values_out_of_bounds_are_refused(given, message):
    with pytest.raises(errors.UserError, match=message):
        Shots(given)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"shots": 3}, "unknown option 'shots': choose from distance, k, kinds"),
        ({"store": {"memory": 3}}, "unknown option 'store.memory': choose from store.memory_mb"),
        ({"store": {"memory_mb": 0.5}}, "store.memory_mb=0.5: at least 1 is needed"),
        ({"store": 3}, "store=3: it is a group of options: choose from store.memory_mb"),
    ],
)
def test_mistakes_in_a_config_are_named_with_their_group(values, message):
    with pytest.raises(errors.UserError) as caught:
        options.from_config(Settings, values)
    assert str(caught.value).startswith(message)


def test_a_config_has_the_defaults_and_what_replaces_them():
    config = options.config_of(Settings, k=5, store={"memory_mb": 64})
    assert options.from_config(Settings, config) == Settings(k=5, store=Inner(64.0))
    assert options.from_config(Settings, options.config_of(Settings)) == Settings()


def test_own_options_come_before_inherited_ones_and_groups_last():
    names = [name for name, _, _ in options.listed(Settings)]
    assert names == ["k", "rate", "seeds", "kinds", "distance", "remat", "output", "store.memory_mb"]
    assert next(options.listed(Settings))[1:] == (3, Settings.__dataclass_fields__["k"].metadata)
