"""Run on 8 forced CPU devices: on every mesh the weights come from file to shard, and states and predictions are those of one device."""

import re
from collections.abc import Callable

import jax
import numpy as np
from flax import nnx

from knnprompt_jax import errors, lm, parallel
from knnprompt_jax.methods import in_context
from knnprompt_jax.models import attention, decoder, registry, sharding
from knnprompt_jax.store import distances, kernel, placement, search
from knnprompt_jax.store import store as store_lib
from tests.parallel import small

MESHES = [(1, 1), (8, 1), (1, 8), (2, 4)]
NUM_PROMPTS, NUM_ANCHORS = 48, 19  # The states split eight ways, the anchors do not.
# Which dimension of each weight is split over `model`.
SPLIT = {
    "tokens": 0,
    "blocks.attention.q_kernel": 2,
    "blocks.attention.q_bias": 1,
    "blocks.attention.kv_kernel": 3,
    "blocks.attention.kv_bias": 2,
    "blocks.attention.out_kernel": 1,
    "blocks.mlp.up_kernel": 2,
    "blocks.mlp.up_bias": 1,
    "blocks.mlp.gate_up_kernel": 3,
    "head_rows": 0,
    "head_bias": 0,
    "blocks.mlp.down_kernel": 1,
}


def check_weights(model: decoder.Decoder, original: decoder.Decoder, mesh: jax.sharding.Mesh) -> None:
    """Every device has its own part of every weight and no more."""
    split = SPLIT if model.config.vocab_size % mesh.shape["model"] == 0 else {**SPLIT, "tokens": None}
    if model.config.num_kv_heads % mesh.shape["model"]:
        split = split | {"blocks.attention.kv_kernel": None, "blocks.attention.kv_bias": None}
    originals = {".".join(path): leaf[...] for path, leaf in nnx.to_flat_state(nnx.state(original))}
    for path, leaf in nnx.to_flat_state(nnx.state(model)):
        path, array = ".".join(path), leaf[...]
        shape = list(array.shape)
        if split.get(path) is not None:
            shape[split[path]] //= mesh.shape["model"]
        assert len(array.addressable_shards) == mesh.size, path
        for shard in array.addressable_shards:
            assert shard.data.shape == tuple(shape), (path, shard.data.shape, shape)
            np.testing.assert_array_equal(shard.data, originals[path][shard.index], err_msg=path)


def check_states(states: lm.States, mesh: jax.sharding.Mesh) -> None:
    """Rows lie on all devices, an equal share each; a selection of them lies everywhere."""
    for array in jax.tree.leaves(states):
        starts = sorted(shard.index[0].start or 0 for shard in array.addressable_shards)
        assert starts == list(range(0, NUM_PROMPTS, NUM_PROMPTS // mesh.size))
    assert all(array.is_fully_replicated for array in jax.tree.leaves(states[:NUM_ANCHORS]))


def check_collectives(model: lm.LanguageModel) -> None:
    """A data shard never waits for another. Over `model` the pass sums, and gathers where the vocabulary is whole; no head moves."""
    programs = [program.as_text() for (name, *_), program in model.execution._compiled.items() if name == "suffixes"]
    data, shards = model.mesh.devices.shape
    over_model = np.arange(data * shards).reshape(data, shards).tolist()
    groups = set(re.findall(r"replica_groups=(\S+?), ", "".join(programs)))
    assert groups <= {
        str(over_model).replace("[", "{").replace("]", "}").replace(" ", ""),
        f"[{data},{shards}]<=[{data * shards}]",
    }, groups
    collectives = set(re.findall(r"(all-\w+|collective-\w+|reduce-scatter)\(", "".join(programs)))
    assert len(programs) == 1
    whole = not sharding.splits_vocabulary(model.config, model.mesh)
    expected = {"all-reduce", "all-gather"} if whole else {"all-reduce"}
    assert collectives == (expected if model.mesh.shape["model"] > 1 else set())


def check_stores(model: lm.LanguageModel, states: lm.States) -> list[np.ndarray]:
    """Anchors lie on all devices, an equal share each, padding included, which no search finds. Returns the five nearest."""
    found = []
    anchors, queries = states[:NUM_ANCHORS], states[NUM_ANCHORS:]
    for kind in store_lib.KINDS:
        options, classes_N = store_lib.StoreOptions(kind), np.arange(NUM_ANCHORS) % 4
        store = store_lib.build(options, "", model.head, anchors, classes_N, small.LABEL_IDS)
        share = -(-NUM_ANCHORS // model.mesh.size)
        for array in jax.tree.leaves(store.anchors):
            starts = sorted(shard.index[0].start or 0 for shard in array.addressable_shards)
            assert starts == list(range(0, share * model.mesh.size, share)), (kind, starts)
            assert {len(shard.data) for shard in array.addressable_shards} == {share}
        everything = store.search(queries, search.SearchOptions(NUM_ANCHORS))
        np.testing.assert_array_equal(np.sort(everything.indices_Qk, -1), [range(NUM_ANCHORS)] * len(queries))
        np.testing.assert_array_equal(everything.labels_Qk, everything.indices_Qk % 4)
        found.append(np.asarray(everything.indices_Qk[:, :5]))
    return found


def check_ties(mesh: jax.sharding.Mesh) -> None:
    """Equal distances, in exact arithmetic, take the lower anchor index, also across devices."""
    rng = np.random.default_rng(3)
    queries_QE, keys_NE = (rng.integers(0, 3, (count, 2)).astype(np.float32) for count in (7, 61))
    anchors = placement.place(placement.Anchors(keys_NE, np.arange(61, dtype=np.int32)), mesh)
    found = kernel.search(queries_QE, anchors.keys, anchors.labels_N, k=23, distance=distances.get("hidden"))
    distances_QN = np.linalg.norm(queries_QE[:, None] - keys_NE, axis=-1)
    np.testing.assert_array_equal(found.indices_Qk, np.argsort(distances_QN, -1, kind="stable")[:, :23])


def predictions(model: lm.LanguageModel, states: lm.States) -> dict[str, list[int]]:
    anchors, queries = states[:NUM_ANCHORS], states[NUM_ANCHORS:]
    classes_N = np.arange(NUM_ANCHORS) % len(small.LABEL_IDS)
    store = store_lib.build(store_lib.StoreOptions(), "", model.head, anchors, classes_N, small.LABEL_IDS)
    nearest = store.search(queries, search.SearchOptions(3)).labels_Qk
    return {
        "icl": in_context.predict_proba(model.head, queries, small.LABEL_IDS).argmax(-1).tolist(),
        "knn": kernel.majority(nearest, num_classes=len(small.LABEL_IDS)).tolist(),
    }


def check_model(name: str, meshes: list[tuple[int, int]]) -> None:
    original, prompts, expected = small.make_decoder(name), small.make_prompts(NUM_PROMPTS), None
    for mesh, loaded in small.loaded(name, original, meshes):
        check_weights(loaded, original, mesh)
        model = small.language_model(loaded, mesh)
        states = small.read(model, prompts)
        assert model.statistics.compilations == 2, "one for the prefix, one for the suffixes"
        check_states(states, mesh)
        check_collectives(model)
        check_ties(mesh)
        found = np.asarray(states.hidden_NE), np.asarray(states.log_z_N), predictions(model, states)
        neighbours = check_stores(model, states)
        expected = expected or (*found, neighbours)
        np.testing.assert_allclose(found[0], expected[0], atol=1e-4)
        np.testing.assert_allclose(found[1], expected[1], atol=1e-4)
        assert found[2] == expected[2]
        np.testing.assert_array_equal(neighbours, expected[3])
        assert all(len(set(classes)) > 1 for classes in found[2].values())


def check_refusals() -> None:
    config = registry.config_from_hf(small.MODELS["gpt2"] | {"n_inner": 60})
    refuses(
        "mesh.data=3, mesh.model=4: there are 8 devices; choose mesh.model from 1, 2, 4, 8", parallel.make_mesh, 3, 4
    )
    refuses("mesh.data=0, mesh.model=3: there are 8 devices", parallel.make_mesh, 0, 3)
    refuses("mesh.model=8 does not divide the model's 60 MLP columns: choose from 1, 2, 4", check, config, 8)
    refuses("mesh.model=5 does not divide the model's 8 heads: choose from 1, 2, 4", check, config, 5)
    assert parallel.make_mesh().shape == {"data": 8, "model": 1}
    assert parallel.make_mesh(model=4).shape == {"data": 2, "model": 4}


def check(config: object, model: int) -> None:
    sharding.check(config, parallel.make_mesh(1, model))


def refuses(message: str, function: Callable, *arguments: object) -> None:
    try:
        function(*arguments)
    except errors.UserError as error:
        assert message in str(error), error
    else:
        raise AssertionError(message)


if __name__ == "__main__":
    assert jax.device_count() == 8
    check_refusals()
    check_model("opt", MESHES)
    attention.LOGITS_ON_CPU = 1  # One head of each shard at a time.
    check_model("gpt2", [(1, 1), (2, 4)])
