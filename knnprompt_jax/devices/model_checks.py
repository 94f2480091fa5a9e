"""Compare the language model on this machine's devices with other ways to compute the same numbers."""

import dataclasses
import itertools
import tempfile
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from scipy import special

from knnprompt_jax.common import parallel
from knnprompt_jax.datastore import StoreOptions
from knnprompt_jax.datastore import store as store_lib
from knnprompt_jax.devices import checks, worlds
from knnprompt_jax.devices.checks import Inputs, Line
from knnprompt_jax.inference import lm
from knnprompt_jax.inference.prompts import layout
from knnprompt_jax.models import attention, kernel_proof, sharding
from knnprompt_jax.study import comparison

# Head sizes, query heads per key head, and whether there are windows: GPT-2's, Llama's and Gemma's.
_COMPILED = ((64, 1, False), (128, 4, False), (256, 4, True))
_INTERPRETED = ((16, 1, False), (24, 2, True))
_PACKED = range(0, 90, 9)
_ALONE = range(5, 12)
_METHODS = ("icl", "knn")


def check_states(inputs: Inputs) -> Iterator[Line]:
    """Compare the states of all prompts on a device with float32 on a CPU."""
    for dtype, allowed in inputs.allowed.items():
        compared = f"{dtype} against float32 on a CPU, nats"
        yield checks.compare(compared, allowed, inputs.deviation, inputs.device, dtype)


def check_attention(inputs: Inputs) -> Iterator[Line]:
    """Compare the attention kernel with XLA's attention on random arrays; CPUs interpret the kernel of GPUs."""
    device = inputs.device.devices.flat[0]
    is_compiled = device.platform in attention.KERNEL_PLATFORMS
    if is_compiled and kernel_proof.switch() == kernel_proof.OFF:
        yield checks.skipped("", f"{kernel_proof.SWITCH}=off")
        return
    platform = device.platform if is_compiled else "gpu"
    kinds = _COMPILED if is_compiled else _INTERPRETED
    for (head_size, heads_per_key, has_windows), dtype in itertools.product(kinds, kernel_proof.TOLERANCE):
        case = kernel_proof.Case(device, dtype, head_size, heads_per_key, has_windows)
        name = f"heads of {head_size}, {heads_per_key} per key head{', windows' * has_windows}, {dtype}"
        allowed = kernel_proof.TOLERANCE[dtype]
        yield checks.compare(name, allowed, kernel_proof.deviation, case, platform, not is_compiled)


def check_packing(inputs: Inputs) -> Iterator[Line]:
    """Compare packed prompts with one prompt at a time: whole prompts, then a context that truncates half of them."""
    model = inputs.model(inputs.device)
    whole = inputs.prompts(model, _PACKED)
    lengths = [len(tokens) for tokens in _token_lists(whole)]
    truncated = inputs.prompts(model, _PACKED, context=int(np.median(lengths)))
    assert 0 < truncated.num_truncated < truncated.num_prompts
    for prompts, kind in ((whole, "packed"), (truncated, "truncated and packed")):
        compared = f"{kind} prompts against one at a time, nats"
        yield checks.compare(compared, inputs.allowed["float32"], _packing_deviation, model, prompts, max(lengths))


def _packing_deviation(model: lm.LanguageModel, prompts: layout.Prompts, longest: int) -> float:
    packed_NV = checks.log_probabilities(model, prompts)
    return checks.largest(packed_NV - one_at_a_time(model, prompts, longest))


def _token_lists(prompts: layout.Prompts) -> list[np.ndarray]:
    """Return the tokens of each prompt."""
    tokens = {}
    for group in prompts.groups:
        for index, suffix in zip(group.number_N, group.suffixes, strict=True):
            tokens[int(index)] = np.concatenate([group.prefix_P, suffix])
    return [tokens[index] for index in range(prompts.num_prompts)]


def one_at_a_time(model: lm.LanguageModel, prompts: layout.Prompts, longest: int) -> np.ndarray:
    """Return log p [N, V] after each prompt, which passes through the decoder alone, by causal attention."""
    graph, params = nnx.split(model.execution.decoder)
    width = parallel.round_up(longest, 64)  # One compilation; later tokens change nothing.

    @jax.jit
    def read(params: nnx.State, tokens_1T: jax.Array, last: jax.Array) -> jax.Array:
        decoder = nnx.merge(graph, params)
        return decoder.head.logits(decoder(tokens_1T)[0, last])

    rows = []
    with jax.default_matmul_precision("highest"):
        for tokens in _token_lists(prompts):
            padded = np.pad(tokens, (0, width - len(tokens))).astype(np.int32)
            rows.append(np.asarray(read(params, padded[None], jnp.int32(len(tokens) - 1)), np.float64))
    return special.log_softmax(np.stack(rows), axis=-1)


def check_deterministic_mode(inputs: Inputs) -> Iterator[Line]:
    """Compare the bits of states and distances with other prompts, another order and other data shards."""
    model = inputs.model(inputs.device, deterministic=True)
    prompts = inputs.prompts(model)
    states = checks.read(model, prompts)
    backwards = range(prompts.num_prompts)[::-1]
    for rows, compared in ((_ALONE, f"states of {len(_ALONE)} prompts alone"), (backwards, "states in another order")):
        yield _compare_bits(compared, checks.read(model, inputs.prompts(model, rows)), _take(states, rows))
    split = inputs.model(parallel.make_mesh(), deterministic=True)
    compared = f"states over all devices ({jax.device_count()})"
    yield _compare_bits(compared, checks.read(split, inputs.prompts(split)), states)
    num_anchors = len(inputs.problem(model).split.anchors)
    anchors = _take(states, range(num_anchors))
    queries = _take(states, range(num_anchors, len(states)))
    store = store_lib.build(StoreOptions(), "kl", model.head, anchors, np.zeros(num_anchors, int), ())
    alone = store.search(_take(queries, range(3, 4)), 3)
    together = jax.tree.map(lambda array: array[3:4], store.search(queries, 3))
    yield _compare_bits("neighbours of one query alone", alone, together)


def _take(states: lm.States, rows: range) -> lm.States:
    return jax.tree.map(lambda array: jnp.asarray(array[np.array(rows)]), states)


def _compare_bits(compared: str, found: Any, wanted: Any) -> Line:
    """Count the rows in which some number has other bits."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    differs = [(_bytes(ours) != _bytes(theirs)).any(-1) for ours, theirs in pairs]
    return checks.compare(f"{compared}, prompts whose bits differ", 0, np.any(differs, 0).sum)


def _bytes(rows: Any) -> np.ndarray:
    """Return the bytes of each row."""
    array = np.ascontiguousarray(rows)
    return array.reshape(len(array), -1).view(np.uint8)


def check_meshes(inputs: Inputs) -> Iterator[Line]:
    """Compare states on every mesh that uses all devices with states on a CPU."""
    num_devices = jax.device_count()
    for size in sharding.model_axes(inputs.model(inputs.cpu).config, num_devices):
        data = num_devices // size
        compared = f"{data} data × {size} model, states against one CPU, nats"
        yield checks.compare(compared, inputs.allowed["float32"], inputs.deviation, parallel.make_mesh(data, size))


def check_main_job(inputs: Inputs) -> Iterator[Line]:
    """Compare the predictions of `compare` over all devices with a CPU's, where rounding does not decide a row."""
    predicted = []
    with tempfile.TemporaryDirectory() as folder:
        for name, mesh in (("devices", parallel.make_mesh()), ("cpu", inputs.cpu)):
            settings = dataclasses.replace(checks.SETTINGS, methods=_METHODS, output=f"{folder}/{name}")
            runs = comparison.run(settings, inputs.model(mesh))
            predicted.append([record.predicted[: checks.NUM_QUERIES] for record in runs])
    ours_MQ, theirs_MQ = map(np.array, predicted)
    is_clear_MQ = _margins(inputs) > 2 * inputs.allowed["float32"]  # Rounding may change both of two numbers.
    compared = f"{' and '.join(_METHODS)}: predictions that differ from a CPU's, of {is_clear_MQ.sum()} beyond rounding"
    yield checks.compare(compared, 0, ((ours_MQ != theirs_MQ) & is_clear_MQ).sum)


def _margins(inputs: Inputs) -> np.ndarray:
    """Return the difference that decides each query by each method, in nats [M, Q].

    It is between the two likeliest label words for "icl", and between the third and the fourth neighbour for "knn".
    """
    problem = inputs.problem(inputs.model(inputs.cpu))
    logk_NV, logp_QV = np.split(inputs.reference_NV, [len(problem.split.anchors)])
    labels_QC = np.sort(logp_QV[:, problem.label_tokens])
    distances_QN = np.sort(worlds.divergences("kl", logp_QV, logk_NV))
    return np.stack([labels_QC[:, -1] - labels_QC[:, -2], distances_QN[:, 3] - distances_QN[:, 2]])
