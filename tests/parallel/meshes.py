"""Check on 8 forced CPU devices that every mesh loads weights from file to shard and gives the states of one device.

The arguments name the models to check, or "likelihoods", "deterministic", "stores", "training" or "refusals".
"""

import itertools
import pathlib
import re
import sys
import tempfile

import jax
import numpy as np
import pytest
from flax import nnx

import knnprompt_jax as kp
from knnprompt_jax.cli.command_settings import Hyperparameters
from knnprompt_jax.common import errors, parallel
from knnprompt_jax.datastore import StoreOptions
from knnprompt_jax.datastore import store as store_lib
from knnprompt_jax.inference import lm
from knnprompt_jax.inference import states as states_lib
from knnprompt_jax.inference.lm import execution
from knnprompt_jax.inference.prompts import continuations
from knnprompt_jax.models import attention, decoder, registry, sharding
from knnprompt_jax.models.families import bert
from knnprompt_jax.study import sequence_classifier
from tests import prompt_groups, random_weights
from tools import export_model

# One vocabulary splits eight ways, the other not at all.
MODELS = {
    "opt": {"model_type": "opt", "vocab_size": 208, "hidden_size": 40, "num_hidden_layers": 2, "num_attention_heads": 8}
    | {"ffn_dim": 56, "max_position_embeddings": 101},
    "gpt2": {"model_type": "gpt2", "vocab_size": 211, "n_embd": 40, "n_layer": 2, "n_head": 8, "n_inner": 56}
    | {"n_positions": 101},
}
# Eight query heads over fewer key heads. Some meshes hold a key head more than once.
_GROUPED = {"vocab_size": 208, "hidden_size": 40, "num_hidden_layers": 3, "num_attention_heads": 8}
_GROUPED |= {"intermediate_size": 56, "max_position_embeddings": 101, "rope_theta": 100.0}
_GEMMA3 = {"head_dim": 6, "sliding_window": 29, "sliding_window_pattern": 2, "query_pre_attn_scalar": 11}
MODELS |= {
    "llama over 2": {**_GROUPED, "model_type": "llama", "num_key_value_heads": 2, "head_dim": 6},
    "phi over 2": {**_GROUPED, "model_type": "phi", "num_key_value_heads": 2, "hidden_size": 48}
    | {"partial_rotary_factor": 0.7},
    "olmo2 over 4": {**_GROUPED, "model_type": "olmo2", "num_key_value_heads": 4, "hidden_size": 48},
    "gemma3 over 2": {**_GROUPED, **_GEMMA3, "model_type": "gemma3_text", "num_key_value_heads": 2},
}
LABEL_TOKENS = [183, 138, 93, 198]
# Devices over data and over model. Key heads are fewer than the shards in some; others have windows, norms across
# heads.
MESHES = {
    "opt": [(1, 1), (2, 4)],
    "gpt2": [(1, 1), (8, 1), (2, 4)],
    "llama over 2": [(1, 1), (1, 8)],
    "phi over 2": [(1, 1), (2, 4), (1, 8)],
    "olmo2 over 4": [(1, 1), (2, 4)],
    "gemma3 over 2": [(1, 1), (2, 4)],
}
ONE_HEAD_AT_A_TIME = ("gpt2", "olmo2 over 4")
LOGITS_ON_CPU = attention.LOGITS_ON_CPU
NUM_PROMPTS, NUM_ANCHORS = 48, 19  # The states split eight ways; the anchors do not.
# The dimension of each weight that is split over `model`.
SPLIT = dict.fromkeys(("tokens", "head_rows", "head_bias"), 0)
SPLIT |= {
    f"blocks.{path}": 1 for path in ("attention.q_bias", "attention.out_kernel", "mlp.up_bias", "mlp.down_kernel")
}
SPLIT |= {f"blocks.{path}": 2 for path in ("attention.q_kernel", "attention.kv_bias", "mlp.up_kernel")}
SPLIT |= {f"blocks.{path}": 3 for path in ("attention.kv_kernel", "mlp.gate_up_kernel")}
TEXTS = [
    f"{subject} {verb}" for subject in ("a dog", "the cat", "who", "it") for verb in ("runs", "is it", "may", "so")
]
LABELS = ["said", "asked", "asked", "said"] * 4
STORE_MESHES = {"8x1": (8, 1), "2x4": (2, 4), "1x2": (1, 2)}


def make_decoder(name: str) -> decoder.Decoder:
    """Return a decoder with large weights: its distributions are peaked and depend on the whole text."""
    return random_weights.make(registry.config_from_hf(MODELS[name]), 0, (0.3, 0.5, 0.25))


def language_model(model: decoder.Decoder, mesh: jax.sharding.Mesh) -> lm.LanguageModel:
    return lm.LanguageModel.from_decoder(model, range(208), step_tokens=256, mesh=mesh)


def check_weights(model: decoder.Decoder, original: decoder.Decoder, mesh: jax.sharding.Mesh) -> None:
    """Check that every device has its own part of every weight and no more."""
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
    """Check that every device has an equal share of the rows, and that a selection of rows is replicated."""
    for array in jax.tree.leaves(states):
        starts = sorted(shard.index[0].start or 0 for shard in array.addressable_shards)
        assert starts == list(range(0, NUM_PROMPTS, NUM_PROMPTS // mesh.size))
    assert all(array.is_fully_replicated for array in jax.tree.leaves(states.take_replicated(slice(NUM_ANCHORS))))


def check_collectives(model: lm.LanguageModel) -> None:
    """Check that no data shard waits for another.

    Over `model`, the pass sums; it also gathers if the vocabulary is not split.
    """
    compiled = model.execution._compiled.items()
    texts = [program.as_text() for (jitted, *_), program in compiled if jitted is execution.map_steps]
    data, shards = model.mesh.devices.shape
    over_model = np.arange(data * shards).reshape(data, shards).tolist()
    groups = set(re.findall(r"replica_groups=(\S+?), ", "".join(texts)))
    assert groups <= {
        str(over_model).replace("[", "{").replace("]", "}").replace(" ", ""),
        f"[{data},{shards}]<=[{data * shards}]",
    }, groups
    collectives = set(re.findall(r"(all-\w+|collective-\w+|reduce-scatter)\(", "".join(texts)))
    assert len(texts) == 2
    whole = not sharding.splits_vocabulary(model.config, model.mesh)
    expected = {"all-reduce", "all-gather"} if whole else {"all-reduce"}
    assert collectives == (expected if model.mesh.shape["model"] > 1 else set())


def check_shards(store: store_lib.Store, mesh: jax.sharding.Mesh | None) -> None:
    """Check that every device has an equal share of the rows, in their order, and no more."""
    size = mesh.size if mesh else 1
    share = -(-len(store) // size)
    for array in jax.tree.leaves((store.keys, store.classes_M)):
        starts = sorted(shard.index[0].start or 0 for shard in array.addressable_shards)
        assert starts == list(range(0, share * size, share)), (array.sharding, starts)
        assert {len(shard.data) for shard in array.addressable_shards} == {share}


def check_model(name: str) -> None:
    attention.LOGITS_ON_CPU = 1 if name in ONE_HEAD_AT_A_TIME else LOGITS_ON_CPU
    original, prompts, expected = make_decoder(name), prompt_groups.make_random(NUM_PROMPTS), None
    with tempfile.TemporaryDirectory() as folder:
        export_model.save(pathlib.Path(folder), original, MODELS[name], np.float32)
        for sizes in MESHES[name]:
            mesh = parallel.make_mesh(*sizes)
            places = sharding.placement(original.config, mesh)
            loaded = registry.load(pathlib.Path(folder), original.config, np.float32, places)
            check_weights(loaded, original, mesh)
            model = language_model(loaded, mesh)
            states = states_lib.read(model, prompts, activations=(lm.Activation(1), lm.Activation(1, is_mean=True)))
            assert model.statistics.compilations == 3, "one for the prefix, one for suffixes after it, one for others"
            check_states(states, mesh)
            check_collectives(model)
            found = [np.asarray(leaf) for leaf in jax.tree.leaves(states)]
            expected = expected or found
            jax.tree.map(lambda ours, theirs: np.testing.assert_allclose(ours, theirs, atol=1e-4), found, expected)
            print(name, *sizes, flush=True)


def check_likelihoods() -> None:
    """Check that the log-probabilities of continuations, some of them truncated, are those of one device."""
    rng = np.random.default_rng(2)

    def tokens(length: int) -> np.ndarray:
        return rng.integers(0, 208, length).astype(np.int32)

    families = [
        continuations.Family(
            tokens(prefix), [tokens(1 + i % 3) for i in range(23)], [tokens(1 + i % 17) for i in range(23)]
        )
        for prefix in (53, 31, 0)
    ]
    texts = continuations.build(families, 61)
    assert texts.num_truncated
    original = make_decoder("opt")
    one, several = (language_model(original, parallel.make_mesh(*mesh)).score(texts).log_p for mesh in ((1, 1), (2, 4)))
    np.testing.assert_allclose(np.concatenate(several), np.concatenate(one), atol=1e-4)
    print("likelihoods")


def check_deterministic() -> None:
    """Check that states and distances have the same bits on all meshes with the same number of model shards."""
    original, prompts, seen = make_decoder("opt"), prompt_groups.make_random(NUM_PROMPTS), {}
    cache = states_lib.MemoryCache(2**20)
    for data, model_shards in [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)]:
        mesh = parallel.make_mesh(data, model_shards)
        model = lm.LanguageModel.from_decoder(original, range(208), mesh=mesh, deterministic=True)
        model.fingerprint = "weights"  # Equal weights, so that only the mesh decides what the cache holds.
        states = states_lib.read(model, prompts, cache)
        assert bool(model.statistics.prompts) == (model_shards not in seen), "the cache mixes numbers of model shards"
        found = [states]
        anchors = states.take_replicated(slice(NUM_ANCHORS))
        queries = states.take_replicated(slice(NUM_ANCHORS, None))
        classes_N = np.arange(NUM_ANCHORS) % 4
        for kind, distance in itertools.product(("dense", "factored"), ("kl", "reverse_kl")):
            options = StoreOptions(kind)
            store = store_lib.build(options, distance, model.head, anchors, classes_N, LABEL_TOKENS)
            near = store.search(queries, 5)
            alone = store.search(queries.take_replicated(slice(7, 8)), 5)
            np.testing.assert_array_equal(alone.distances_Qk, near.distances_Qk[7:8])
            found.append(near)
        bits = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(parallel.replicate(found))]
        assert seen.setdefault(model_shards, bits) == bits, (data, model_shards)
    print("deterministic")


def check_saved_store(kind: str, path: pathlib.Path) -> None:
    options = StoreOptions(kind)
    model = kp.LanguageModel.from_pretrained("tiny", mesh=parallel.make_mesh(1, 2))
    fitted = kp.KNNPrompting(model, demo_shots=1, store_options=options).fit(TEXTS[:-1], LABELS[:-1])
    fitted.save(path)
    distances, ids = fitted.kneighbors(TEXTS, 5)
    for name, sizes in STORE_MESHES.items():
        mesh = parallel.make_mesh(*sizes)
        loaded = kp.load(path, mesh=mesh)
        check_shards(loaded.fitted_.store, mesh)
        assert loaded.fitted_.store.mesh == mesh
        found = loaded.kneighbors(TEXTS, 5)
        np.testing.assert_array_equal(found[1], ids)
        np.testing.assert_allclose(found[0], distances, atol=1e-4)
        print(kind, name)


def check_stores() -> None:
    with tempfile.TemporaryDirectory() as name:
        for kind in ("factored", "dense"):
            check_saved_store(kind, pathlib.Path(name, kind))


def check_training() -> None:
    """Check that training on the two of eight devices that divide its batch equals training on one device."""
    sizes = {"vocab_size": 53, "hidden_size": 35, "num_hidden_layers": 2, "num_attention_heads": 5}
    sizes |= {"model_type": "bert", "intermediate_size": 41, "max_position_embeddings": 37}
    config = registry.config_from_hf(sizes, registry.ENCODERS)
    rng = np.random.default_rng(0)
    lengths = (3, 9, 17, 4, 30)
    losses = []
    tokens = tuple(rng.integers(0, 53, length).tolist() for length in lengths)
    rows = sequence_classifier.Texts(tokens, tuple([0] * length for length in lengths), 37)
    for batch_mesh in (1, 6):
        model = sequence_classifier.SequenceClassifier(bert.Encoder(config, nnx.Rngs(1)), 3, nnx.Rngs(2))
        settings = Hyperparameters(steps=2, batch=6, learning_rate=1e-3)
        tuner = sequence_classifier.Trainer(model, settings, sequence_classifier.make_mesh(batch_mesh))
        losses.append(tuner.train(rows, np.array([0, 1, 2, 1, 0])))
    np.testing.assert_allclose(*losses, rtol=1e-5)
    leaf = jax.tree.leaves(tuner._params)[0]
    batch, *_ = tuner._put(*rows.batch([0, 1, 2, 3, 4, 0], 6, 32))
    assert leaf.sharding.is_fully_replicated and len(leaf.devices()) == 2
    assert dict(tuner.mesh.shape) == {"data": 2, "model": 1} and batch.addressable_shards[0].data.shape == (3, 32)
    assert tuner.predict_proba(rows).shape == (5, 3)
    print("training")


def check_refusals() -> None:
    config = registry.config_from_hf(MODELS["gpt2"] | {"n_inner": 60})
    grouped = {"num_attention_heads": 24, "num_key_value_heads": 6, "intermediate_size": 48}
    grouped_config = registry.config_from_hf(MODELS["llama over 2"] | grouped)
    refusals = {
        "mesh data=3, mesh model=4: there are 8 devices; give sizes whose product is at most that": (3, 4),
        "mesh data=0, mesh model=3: there are 8 devices; give sizes": (0, 3),
        "mesh model=8 does not divide the model's 60 MLP columns: choose from 1, 2, 4": (1, 8, config),
        "mesh model=5 does not divide the model's 8 heads: choose from 1, 2, 4": (1, 5, config),
        "mesh model=4 does not divide the model's 6 key and value heads: choose from": (1, 4, grouped_config),
    }
    for message, (data, model, *configs) in refusals.items():
        with pytest.raises(errors.UserError, match=re.escape(message)):
            sharding.check(*configs, parallel.make_mesh(data, model))
    assert parallel.make_mesh().shape == {"data": 8, "model": 1}
    assert parallel.make_mesh(model=4).shape == {"data": 2, "model": 4}


if __name__ == "__main__":
    assert jax.device_count() == 8
    others = {"likelihoods": check_likelihoods, "deterministic": check_deterministic}
    others |= {"stores": check_stores, "refusals": check_refusals, "training": check_training}
    for name in sys.argv[1:]:
        if name in others:
            others[name]()
        else:
            check_model(name)
