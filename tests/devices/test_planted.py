"""A wrong result is planted for each line of `knnprompt check` in turn, and the line says FAIL."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.lax import lax

from knnprompt_jax.datastore import search as search_lib
from knnprompt_jax.datastore import store as store_lib
from knnprompt_jax.devices import checks, model_checks, search_checks
from knnprompt_jax.inference import lm
from knnprompt_jax.models import attention, prefix_kernel
from tests import processes

PRODUCT = lax.dot_general


@pytest.fixture(scope="module")
def reference() -> Iterator[np.ndarray]:
    """The log-probabilities of a CPU after 43 prompts, before anything is planted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "NUM_QUERIES", 7)
        patch.setattr(model_checks, "_PACKED", range(0, 43, 5))
        yield checks.Inputs().reference_NV


@pytest.fixture
def inputs(reference):
    """Inputs with the right reference, whose models read no program that was traced earlier or stays for later."""
    jax.clear_caches()
    inputs = checks.Inputs()
    vars(inputs)["reference_NV"] = reference
    yield inputs
    jax.clear_caches()


def results(check, inputs) -> list[str]:
    """Run a check and return the results of its lines that have one."""
    return [line.result for line in check(inputs) if line.result != checks.NOT_RUN]


def damage(model: lm.LanguageModel) -> lm.LanguageModel:
    """Return the model with one damaged weight matrix in its first block."""
    load = model._load

    def load_damaged(mesh):
        decoder = load(mesh)
        kernel_LFD = decoder.blocks.mlp.down_kernel
        kernel_LFD.set_value(kernel_LFD[...].at[0].multiply(-3))
        return decoder

    model._load = load_damaged
    return model


def test_states(inputs, monkeypatch):
    make = checks.Inputs.model
    monkeypatch.setattr(checks.Inputs, "model", lambda *given, **options: damage(make(*given, **options)))
    assert results(model_checks.check_states, inputs) == ["FAIL"] * 2


@pytest.fixture
def tf32(monkeypatch):
    """Round the operands of all products of float32 to 10 bits."""

    def round_operands(left, right, *given, **options):
        operands = [jax.lax.reduce_precision(array, 8, 10) for array in (left, right)]
        return PRODUCT(*operands, *given, **options)

    monkeypatch.setattr(lax, "dot_general", round_operands)


def test_packing_with_products_of_tf32(inputs, tf32, monkeypatch):
    """Single prompts are read without rounding."""
    one_at_a_time = model_checks.one_at_a_time

    def read_exactly(*given):
        with monkeypatch.context() as patch:
            patch.setattr(lax, "dot_general", PRODUCT)
            jax.clear_caches()
            return one_at_a_time(*given)

    monkeypatch.setattr(model_checks, "one_at_a_time", read_exactly)
    assert results(model_checks.check_packing, inputs) == ["FAIL"] * 2


def test_attention(inputs, monkeypatch):
    """The kernel forgets the last token of the prefix."""
    attend = prefix_kernel.attend

    def forget(*arguments):
        rows, length, rest = arguments[:7], arguments[7], arguments[8:]
        return attend(*rows, length - 1, *rest)

    monkeypatch.setattr(prefix_kernel, "attend", forget)
    assert results(model_checks.check_attention, inputs) == ["FAIL"] * 4


def test_packing(inputs, monkeypatch):
    """Suffixes see the suffixes before them in their row."""

    def see_neighbours(stops_BS):
        columns_S = jnp.arange(stops_BS.shape[1])
        return jnp.broadcast_to(columns_S <= columns_S[:, None], (*stops_BS.shape, stops_BS.shape[1]))

    monkeypatch.setattr(attention, "attention_mask", see_neighbours)
    assert results(model_checks.check_packing, inputs) == ["FAIL"] * 2


def test_deterministic_mode(inputs, monkeypatch):
    """The last digits of states depend on their rows, and those of distances on the number of queries."""
    read = checks.read
    search = store_lib.Store.search

    def read_by_row(model, prompts):
        states = read(model, prompts)
        scale_N1 = 1 + 1e-6 * np.arange(len(states), dtype=np.float32)[:, None]
        return states.replace(hidden_NE=scale_N1 * states.hidden_NE)

    def search_by_number(store, states, k):
        found = search(store, states, k)
        return found.replace(distances_Qk=found.distances_Qk * (1 + 1e-6 * len(states)))

    monkeypatch.setattr(checks, "read", read_by_row)
    monkeypatch.setattr(store_lib.Store, "search", search_by_number)
    assert results(model_checks.check_deterministic_mode, inputs) == ["FAIL", "FAIL", "pass", "FAIL"]


def test_search(inputs, monkeypatch):
    """A tile of anchors begins one anchor too late."""
    tile = search_lib._tile

    def late(tree, first, num_rows, size):
        start, rows = tile(tree, first, num_rows, size)
        return (start + 1, rows) if isinstance(tree, tuple) and isinstance(tree[1], jax.Array) else (start, rows)

    monkeypatch.setattr(search_lib, "_tile", late)
    assert results(search_checks.check_search, inputs) == ["FAIL"] * 11


def test_main_job(inputs, monkeypatch):
    """The first of both models, that of the devices, is damaged."""
    make = checks.Inputs.model
    made = []

    def damage_first(*given, **options):
        made.append(make(*given, **options))
        return damage(made[0]) if len(made) == 1 else made[-1]

    monkeypatch.setattr(checks.Inputs, "model", damage_first)
    assert results(model_checks.check_main_job, inputs) == ["FAIL"]


MESHES = """
import jax
from jax._src.lax import lax
from knnprompt_jax.devices import checks, model_checks
from knnprompt_jax.inference.lm import execution
import numpy as np

def show(check):
    print([line.result for line in check(inputs)])

put_steps = execution.Execution._put_steps

def put_on_wrong_shards(self, array_TD, steps):
    return put_steps(self, np.roll(array_TD, array_TD.shape[1] - 1, 1), steps)

execution.Execution._put_steps = put_on_wrong_shards
checks.NUM_QUERIES = 7
inputs = checks.Inputs()
show(model_checks.check_meshes)
show(model_checks.check_deterministic_mode)
execution.Execution._put_steps = put_steps
model_checks.sharding.model_axes = lambda config, devices: [2]
product = lax.dot_general
lax.dot_general = lambda *arrays, **options: product(
    *(jax.lax.reduce_precision(array, 8, 10) for array in arrays[:2]), *arrays[2:], **options
)
jax.clear_caches()
show(model_checks.check_meshes)
"""


def test_meshes():
    """Steps are put on the wrong data shards: lines with one data shard pass. Then products are of TF32."""
    printed, _ = processes.run("-c", MESHES, devices=2)
    assert printed.splitlines()[-3:] == ["['FAIL', 'pass']", "['pass', 'pass', 'FAIL', 'pass']", "['FAIL']"]


def test_nothing_fails_where_nothing_is_planted():
    """`test_check_runner` has packing and the checks of several devices; others have lines above that pass."""
    assert results(search_checks.check_search, checks.Inputs()) == ["pass"] * 11


def test_a_comparison_that_raises_fails():
    """It ends no other comparison of its check."""
    line = checks.compare("x", 1.0, lambda: 1 / 0)
    assert (line.result, line.reason) == ("FAIL", "ZeroDivisionError: division by zero")


@pytest.mark.parametrize("deviation", [float("nan"), float("inf"), 1.5])
def test_what_is_no_number_fails(deviation):
    assert checks.compare("x", 1.0, lambda: deviation).result == "FAIL"
