"""Options: checks of values, configs and lists, all made from the declaration."""

import json

import numpy as np
import pytest

from knnprompt_jax.cli import shared_settings as shared
from knnprompt_jax.common import errors, options


class Inner(options.Options):
    memory_mb: float = options.option(512.0, "Memory.", least=1)


class Base(options.Options):
    store: Inner = options.group(Inner)
    output: str = options.option("results", "Folder.", nonempty=True)


class Settings(Base):
    k: int = options.option(3, "Neighbours.", least=1)
    rate: float = options.option(0.5, "Dropout.", least=0, most=1)
    seeds: tuple[int, ...] = options.option((1, 2), "Seeds.", least=-1, nonempty=True)
    kinds: tuple[str, ...] = options.option(("dense",), "Stores.", choices={"dense": 1, "factored": 2})
    distance: str = options.option("kl", "Distance.", choices=("kl", "reverse_kl"))
    remat: bool = options.option(False, "Recompute.")
    seed: int | None = options.option(None, "Seed of the draw.", least=0)


@pytest.mark.parametrize(
    "values",
    [
        {"k": 7, "rate": 1, "seeds": (-1, 5), "kinds": (), "distance": "reverse_kl", "remat": True, "output": "x"},
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


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"k": 3.0}, "k=3.0: give a whole number"),
        ({"k": 0}, "k=0: give a whole number from 1 to 2147483647"),
        ({"seeds": (4, -2)}, "seeds=(4, -2): for each value, give a whole number from -1 to"),
        ({"distance": "cosine"}, "distance=cosine: choose from kl, reverse_kl"),
        ({"remat": 1}, "remat=1: give True or False"),
        ({"output": "a\0b"}, "output='a\\x00b': give UTF-8 text"),
        ({"shots": 3}, "shots: no such option; choose from distance, k, kinds"),
        ({"store": {"memory": 3}}, "store.memory: no such option; choose from store.memory_mb"),
    ],
)
def test_mistakes_name_the_option_the_value_and_the_choices(values, message):
    with pytest.raises(errors.UserError) as caught:
        options.from_config(Settings, values)
    assert str(caught.value).startswith(message)


def test_a_config_replaces_defaults():
    expected = Settings(k=5, store=Inner(64.0))
    assert options.from_config(Settings, {"k": 5, "store": {"memory_mb": 64}}) == expected
    assert options.from_config(Settings, options.flattened(expected.to_dict())) == expected
    assert options.from_config(Settings, {}) == Settings(rate="0.5", seeds="1,2", remat="false")


def test_the_processes_of_a_run_need_an_address_and_an_index_each():
    two = {"address": "a:1", "num_processes": 2}
    for values in ({"num_processes": 2}, two | {"process_id": 2}, two | {"address": "a:65536"}, two | {"auto": True}):
        with pytest.raises(errors.UserError, match="give process 0 as host:port"):
            shared.DistributedOptions(**values)
