"""XLA's memory for the programs of a pass and a search, compiled from shapes for this CPU and for absent TPUs."""

import dataclasses
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from knnprompt_jax.common import parallel
from knnprompt_jax.datastore import StoreOptions, rowwise, search_plan
from knnprompt_jax.datastore import search as search_lib
from knnprompt_jax.datastore import store as store_lib
from knnprompt_jax.devices import workload
from knnprompt_jax.inference import lm
from knnprompt_jax.inference.lm import execution, memory
from knnprompt_jax.inference.prompts import packing
from knnprompt_jax.models import attention, kernel_proof, registry
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import head as head_lib

BLOCKS = head_lib.Activation(1), head_lib.Activation(1, is_mean=True)  # What the experts of the pool read.
SHAPE = packing.PackShape(prefix=896, width=128, rows=128, outputs=1368)
CASES = {
    "a width that 128 does not divide": ("v5e:2x4", 8, 1, "gpt2-xl", "float32"),
    "two rows of chips": ("v5e:2x4", 4, 2, "facebook/opt-6.7b", "bfloat16"),
    "two hosts, grouped heads": ("v5e:4x4", 4, 4, "meta-llama/Meta-Llama-3-8B", "bfloat16"),
    "a block in space, float32": ("v5p:2x2x4", 8, 2, "Qwen/Qwen3-8B", "float32"),
    "seven heads on a device": ("v5e:2x4", 1, 8, "facebook/opt-30b", "bfloat16"),
}


def tpus(topology: str) -> list[Any]:
    """Return the devices of a TPU slice that need not exist, for ahead-of-time compilation."""
    # libtpu looks for neither a TPU nor its metadata server, and a second process may load it too.
    os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
    from jax.experimental import topologies

    return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices


def make_mesh(devices: list[Any], data: int, model: int) -> Mesh:
    """Return a mesh of the first devices, in the order of `parallel.make_mesh`."""
    return parallel.make_mesh_on(devices[: data * model], data, model)


def pass_memory(config: config_lib.DecoderConfig, dtype: str, shape: packing.PackShape, mesh: Mesh) -> dict[str, Any]:
    """Compile the programs "prefix" and "suffixes" of a packing; return XLA's analysis of their memory per device."""
    graph, params = workload.abstract_weights(config, dtype, mesh)

    def array(shape: tuple[int, ...], dtype: Any = jnp.int32, spec: P | None = None) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec or P()))

    kv_shape = config.num_layers, max(config.num_kv_heads, mesh.shape[parallel.MODEL]), shape.prefix, config.head_size
    kv = array(kv_shape, jnp.dtype(dtype), P(None, parallel.MODEL))
    data = mesh.shape[parallel.DATA]
    steps = execution.STEPS_PER_CALL
    rows = P(None, parallel.DATA)
    tokens = array((steps, data * shape.rows, shape.width), spec=rows)
    outputs = array((steps, data * shape.outputs), spec=rows)
    is_in_kernel = kernel_proof.is_expected(mesh.devices.flat[0].platform)
    with jax.default_matmul_precision("highest"):
        prefix = execution.read_prefix.lower(graph, mesh, params, array((shape.prefix,)), array(()))
        suffixes = execution.map_steps.lower(
            graph,
            mesh,
            params,
            attention.Prefix(kv, kv, array(())),
            array((steps,), jnp.bool_),
            packing.Step(tokens, tokens, tokens, outputs),
            function=execution.suffix_reader(False, BLOCKS),
            use_kernel=is_in_kernel,
        )
    return {"prefix": prefix.compile().memory_analysis(), "suffixes": suffixes.compile().memory_analysis()}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_memory_on_a_cpu_is_what_the_arithmetic_says(dtype):
    """Arguments are weights, prefix and tokens to the byte."""
    config = dataclasses.replace(registry.config_from_hf(registry.PUBLISHED["gpt2"]), num_layers=2, vocab_size=1009)
    need = memory.estimate(config, dtype, SHAPE, parallel.make_mesh(1, 1), "cpu")
    found = pass_memory(config, dtype, SHAPE, make_mesh(jax.devices(), 1, 1))
    tokens = 4 * execution.STEPS_PER_CALL * (3 * SHAPE.rows * SHAPE.width + SHAPE.outputs)
    flags = 4 + execution.STEPS_PER_CALL  # The length of the prefix, and which steps are active.
    assert found["suffixes"].argument_size_in_bytes == need.weights + need.prefix + tokens + flags
    assert found["prefix"].output_size_in_bytes >= need.prefix
    assert found["suffixes"].temp_size_in_bytes == pytest.approx(need.working, rel=0.1)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_memory_on_a_tpu_is_what_the_arithmetic_says(name, monkeypatch):
    """Less effort makes the compiler several times as fast and changes memory by some per cent."""
    pytest.importorskip("libtpu", reason="the TPU compiler is not installed")
    monkeypatch.setenv("JAX_EXEC_TIME_OPTIMIZATION_EFFORT", "-1.0")
    target, data, model, published, dtype = CASES[name]
    config = registry.config_from_hf(registry.PUBLISHED[published])
    need = memory.estimate(config, dtype, SHAPE, AbstractMesh((data, model), parallel.AXES), "tpu")
    found = pass_memory(config, dtype, SHAPE, make_mesh(tpus(target), data, model))
    # Exact but for tokens (under 10 MB) and the padding of whole registers. A copy of a weight would not fit in the
    # tenth.
    assert found["suffixes"].argument_size_in_bytes == pytest.approx(need.weights + need.prefix + 5e6, rel=0.08)
    assert found["suffixes"].peak_memory_in_bytes == pytest.approx(need.total, rel=0.1)


@pytest.mark.long
@pytest.mark.parametrize("num_queries", [1, 256])
def test_the_search_compiles_for_a_tpu_without_a_copy_of_the_anchors(num_queries):
    pytest.importorskip("libtpu", reason="the TPU compiler is not installed")
    rng = np.random.default_rng(0)
    width = 1600
    num_anchors = 2**20
    head = head_lib.Head(jnp.asarray(rng.normal(size=(211, width)), jnp.float32))
    hidden_NE = jnp.asarray(rng.normal(size=(8, width)), jnp.float32)
    states = lm.States(hidden_NE, jax.nn.logsumexp(head.logits(hidden_NE), -1))
    store = store_lib.build(StoreOptions(kind="factored"), "kl", head, states, np.arange(8) % 2, (0, 1))
    mesh, whole = make_mesh(tpus("v5e:2x4"), 8, 1), jax.sharding.PartitionSpec()

    def abstract(tree, rows, split):
        def resize(leaf):
            place = rowwise.row_format(mesh, leaf.ndim) if split else jax.NamedSharding(mesh, whole)
            return jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype, sharding=place)

        return jax.tree.map(resize, tree)

    queries = store.codec.encode_queries(states)
    keys, classes_M = abstract((store.keys, store.classes_M), num_anchors, split=True)
    shard = num_anchors // 8
    plan = search_plan.choose(store.codec, keys, num_queries, 3, 512 * 2**20)
    given = abstract(queries, num_queries, split=False), keys, classes_M
    program = search_lib.search_compiled.lower(*given, plan.options, mesh, parallel.AXES).compile()
    assert program.memory_analysis().temp_size_in_bytes <= 1.1 * plan.num_bytes < shard * width * 4
    assert program.memory_analysis().temp_size_in_bytes < 2**20, "distances leave the memory on the chip"
    # XLA counts each loop's body once: one tile of queries and one of anchors.
    operations = 2 * plan.options.queries_per_tile * plan.options.anchors_per_tile * width
    assert program.cost_analysis()["flops"] == pytest.approx(operations, rel=0.05)
