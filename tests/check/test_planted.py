"""A wrong result is planted for each line of `knnprompt check` in turn, and the line says FAIL."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.lax import lax

from knnprompt_jax import lm
from knnprompt_jax.check import (
    attention_kernel,
    deterministic_mode,
    findings,
    main_job,
    model_states,
    packed_prompts,
    runner,
    search,
)
from knnprompt_jax.check import inputs as inputs_lib
from knnprompt_jax.models import attention, kernel_proof, prefix_kernel
from knnprompt_jax.settings import check as settings_lib
from knnprompt_jax.store import search as search_lib
from knnprompt_jax.store import store as store_lib
from tests import processes

PRODUCT = lax.dot_general
SETTINGS = settings_lib.CheckSettings(quick=True)


@pytest.fixture(scope="module")
def reference() -> np.ndarray:
    """The log-probabilities of a CPU, before anything is planted."""
    return inputs_lib.Inputs(SETTINGS).reference_NV


@pytest.fixture
def inputs(reference):
    """Inputs with the right reference, whose models read no program that was traced earlier or stays for later."""
    jax.clear_caches()
    inputs = inputs_lib.Inputs(SETTINGS)
    vars(inputs)["reference_NV"] = reference
    yield inputs
    jax.clear_caches()


def comparisons(module, inputs) -> dict[str, bool]:
    """Run a module's first check; return whether each line passes."""
    found = [each for each in module.CHECKS[0].run(inputs) if isinstance(each, findings.Comparison)]
    return {each.compared: each.passes for each in found}


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
    assert inputs.reference.head
    make = inputs_lib.Inputs.model
    monkeypatch.setattr(inputs_lib.Inputs, "model", lambda *given, **options: damage(make(*given, **options)))
    monkeypatch.setattr(model_states, "_is_reference", lambda mesh: False)
    assert list(comparisons(model_states, inputs).values()) == [False, False, False]


@pytest.fixture
def tf32(monkeypatch):
    """Round the operands of all products of float32 to 10 bits."""

    def round_operands(left, right, *given, **options):
        operands = [jax.lax.reduce_precision(array, 8, 10) for array in (left, right)]
        return PRODUCT(*operands, *given, **options)

    monkeypatch.setattr(lax, "dot_general", round_operands)


def test_states_with_products_of_tf32(inputs, tf32, monkeypatch):
    """Only the line in float32 fails: bfloat16 is rougher."""
    monkeypatch.setattr(model_states, "_is_reference", lambda mesh: False)
    assert list(comparisons(model_states, inputs).values()) == [False, True, True]


def test_packing_with_products_of_tf32(inputs, tf32, monkeypatch):
    """Single prompts are read without rounding."""
    one_at_a_time = packed_prompts.one_at_a_time

    def read_exactly(*given):
        with monkeypatch.context() as patch:
            patch.setattr(lax, "dot_general", PRODUCT)
            jax.clear_caches()
            return one_at_a_time(*given)

    monkeypatch.setattr(packed_prompts, "one_at_a_time", read_exactly)
    assert list(comparisons(packed_prompts, inputs).values()) == [False, False]


def test_attention(inputs, monkeypatch):
    """The kernel forgets the last token of the prefix."""
    attend = prefix_kernel.attend

    def forget(*arguments):
        rows, length, rest = arguments[:7], arguments[7], arguments[8:]
        return attend(*rows, length - 1, *rest)

    monkeypatch.setattr(prefix_kernel, "attend", forget)
    assert list(comparisons(attention_kernel, inputs).values()) == [False] * 4


def test_packing(inputs, monkeypatch):
    """Suffixes see the suffixes before them in their row."""

    def see_neighbours(stops_BS):
        columns_S = jnp.arange(stops_BS.shape[1])
        return jnp.broadcast_to(columns_S <= columns_S[:, None], (*stops_BS.shape, stops_BS.shape[1]))

    monkeypatch.setattr(attention, "attention_mask", see_neighbours)
    assert list(comparisons(packed_prompts, inputs).values()) == [False, False]


def test_deterministic_mode(inputs, monkeypatch):
    """The last digits of states depend on their rows, and those of distances on the number of queries."""
    read = inputs_lib.read
    search = store_lib.Store.search

    def read_by_row(model, prompts):
        states = read(model, prompts)
        scale_N1 = 1 + 1e-6 * np.arange(len(states), dtype=np.float32)[:, None]
        return states.replace(hidden_NE=scale_N1 * states.hidden_NE)

    def search_by_number(store, states, k):
        found = search(store, states, k)
        return found.replace(distances_Qk=found.distances_Qk * (1 + 1e-6 * len(states)))

    monkeypatch.setattr(inputs_lib, "read", read_by_row)
    monkeypatch.setattr(store_lib.Store, "search", search_by_number)
    assert list(comparisons(deterministic_mode, inputs).values()) == [False, False, False]


def test_search(inputs, monkeypatch):
    """A tile of anchors begins one anchor too late."""
    tile = search_lib._tile

    def late(tree, first, num_rows, size):
        start, rows = tile(tree, first, num_rows, size)
        return (start + 1, rows) if isinstance(tree, tuple) and isinstance(tree[1], jax.Array) else (start, rows)

    monkeypatch.setattr(search_lib, "_tile", late)
    found = comparisons(search, inputs)
    assert len(found) == 11 and not any(found.values())


def test_main_job(inputs, monkeypatch):
    """The first of both models, that of the devices, is damaged."""
    make = inputs_lib.Inputs.model
    made = []

    def damage_first(*given, **options):
        made.append(make(*given, **options))
        return damage(made[0]) if len(made) == 1 else made[-1]

    monkeypatch.setattr(inputs_lib.Inputs, "model", damage_first)
    assert list(comparisons(main_job, inputs).values()) == [False]


MESHES = """
import jax
from jax._src.lax import lax
from knnprompt_jax.check import deterministic_mode, inputs, meshes, runner
from knnprompt_jax.lm import programs
from knnprompt_jax.settings import check as settings_lib
import numpy as np

deal = programs.deal
programs.deal = lambda array_T, data: np.roll(deal(array_T, data), data - 1, 1)  # To the wrong data shards.
quick = inputs.Inputs(settings_lib.CheckSettings(quick=True))
print([finding.passes for finding in runner._run(meshes.CHECKS[0], quick, 1.0)])
print([finding.passes for finding in runner._run(deterministic_mode.CHECKS[0], quick, 1.0)])
programs.deal = deal
meshes.sharding.model_axes = lambda config, devices: [2]
product = lax.dot_general
lax.dot_general = lambda *arrays, **options: product(
    *(jax.lax.reduce_precision(array, 8, 10) for array in arrays[:2]), *arrays[2:], **options
)
jax.clear_caches()
print([finding.passes for finding in runner._run(meshes.CHECKS[0], quick, 1.0)])
"""


def test_meshes():
    """Prompts are dealt to the wrong data shards: lines with one data shard pass. Then products are of TF32."""
    printed, _ = processes.run("-c", MESHES, devices=2)
    assert printed.splitlines()[-3:] == ["[False, True]", "[True, True, False, True]", "[False]"]


@pytest.mark.parametrize(("module", "num_lines"), [(packed_prompts, 2), (search, 11)])
def test_nothing_fails_where_nothing_is_planted(module, num_lines):
    """`test_runner` has the checks of several devices; others have lines above that pass."""
    found = comparisons(module, inputs_lib.Inputs(SETTINGS))
    assert len(found) == num_lines and all(found.values())


def test_a_check_that_raises_fails():
    def run(inputs):
        yield findings.Comparison("before", 0.0, 1.0, "")
        raise ValueError("broken\nhere")

    first, second = runner._run(findings.Check("c", run), inputs_lib.Inputs(SETTINGS), 1.0)
    assert first.passes and second.reason == "ValueError: broken here"


def test_a_comparison_that_raises_ends_no_other(inputs, monkeypatch):
    """The kernel refuses one dtype; the other is still compared."""
    prove = kernel_proof.prove

    def refuse(case, *given, **options):
        if case.dtype == "bfloat16":
            raise NotImplementedError("no bfloat16")
        return prove(case, *given, **options)

    monkeypatch.setattr(kernel_proof, "prove", refuse)
    found = [*attention_kernel.run(inputs)]
    assert [getattr(finding, "passes", finding.reason) for finding in found[:-1]] == [
        *[True, "NotImplementedError: no bfloat16"] * 2
    ]


def test_a_kernel_that_works_but_is_not_used_fails(monkeypatch):
    """An earlier process could not prove the kernel; this one can."""
    device = jax.devices()[0]
    monkeypatch.setattr(kernel_proof, "prove", lambda case, device: kernel_proof.Outcome(1e-6, ""))
    monkeypatch.setattr(kernel_proof, "outcome", lambda case: kernel_proof.Outcome(None, "killed"))
    found = [*attention_kernel._compare_outputs([(16, 1, False)], device, attention_kernel._deviation_compiled)]
    assert [(type(finding), "killed" in finding.reason) for finding in found] == [(findings.Failed, True)] * 2


@pytest.mark.parametrize("deviation", [float("nan"), float("inf"), 1.5])
def test_what_is_no_number_fails(deviation):
    assert not findings.Comparison("x", deviation, 1.0, "").passes
