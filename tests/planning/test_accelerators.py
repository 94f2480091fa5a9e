"""The project's programs compiled for accelerators that are not here, at published shapes.

Compilers are asked for less effort, which makes them several times as fast; memory stays within some per cent of what it is with all.
"""

import pytest

TPU_CASES = {
    "two rows of chips": ("v5e:2x4", 4, 2, ("prefix", "suffixes", "scores"), "facebook/opt-6.7b", "bfloat16"),
    "two hosts, grouped heads": ("v5e:4x4", 4, 4, ("suffixes", "search"), "meta-llama/Meta-Llama-3-8B", "bfloat16"),
    "a block in space, float32": ("v5p:2x2x4", 8, 2, ("suffixes",), "Qwen/Qwen3-8B", "float32"),
    "seven heads on a device": ("v5e:2x4", 1, 8, ("suffixes",), "facebook/opt-30b", "bfloat16"),
    "a width that 128 does not divide": ("v5e:2x4", 8, 1, ("suffixes", "search"), "gpt2-xl", "float32"),
}
GPU_CASES = {
    "heads": ("h100:8", 8, 1, ("prefix", "suffixes", "search"), "gpt2-xl", "float32"),
    "grouped heads": ("h100:8", 2, 4, ("suffixes", "scores"), "meta-llama/Meta-Llama-3-8B", "bfloat16"),
}
CASES = TPU_CASES | GPU_CASES


@pytest.fixture(scope="module", params=CASES, ids=lambda name: name.replace(" ", "_"))
def case(request, compiled):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_EXEC_TIME_OPTIMIZATION_EFFORT", "-1.0")
        return compiled(*CASES[request.param])


def test_everything_compiles_in_float32_at_most(case):
    assert {name: figures.error for name, figures in case.figures.items()} == dict.fromkeys(case.request.programs, "")
    assert not any(figures.has_float64 for figures in case.figures.values())


def test_passes_need_no_collective_over_data(case):
    passes = [figures for name, figures in case.figures.items() if name != "search"]
    over = {tuple(each["axes"]) for figures in passes for each in figures.collectives}
    assert over == ({("model",)} if case.request.model > 1 else set())


def test_no_whole_weight_or_shard_of_anchors_is_copied(case):
    assert {name: figures.copies for name, figures in case.figures.items() if figures.copies} == {}


def test_memory_is_what_the_arithmetic_says(case):
    """Within a tenth of all of it."""
    for name, figures in case.figures.items():
        if "suffixes" in name:
            assert figures.peak == pytest.approx(case.need.total, rel=0.1)


def test_arguments_are_weights_and_prefix(case):
    """Exactly, but for tokens (under 10 MB) and for what rounding to whole registers adds."""
    for name, figures in case.figures.items():
        if "suffixes" in name:
            assert figures.arguments == pytest.approx(case.need.weights + case.need.prefix + 5e6, rel=0.08)


def test_estimates_are_of_a_tpu(case):
    is_tpu = not case.request.target.startswith("h100")
    assert {bool(figures.cycles) for figures in case.figures.values()} == {is_tpu}
    for name, figures in case.figures.items():
        if is_tpu and name != "search":
            assert figures.cycles.get("other", 0) < 0.2 * sum(figures.cycles.values())
